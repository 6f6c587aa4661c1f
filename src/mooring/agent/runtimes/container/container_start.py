"""The start of one container: created with its network and mounts, started, and held to its limits."""

from __future__ import annotations

import contextlib

from mooring.agent.node import hugepages, limits
from mooring.agent.node.usage_counters import cgroup_of
from mooring.agent.runtimes.container.engine import Engine, EngineRefused, EngineTransient
from mooring.agent.runtimes.container.record import TaskRecord
from mooring.agent.runtimes.container.shared_state import SharedState
from mooring.agent.runtimes.container.specification import (
    TASK,
    PreparedResources,
    Role,
    configuration,
    name_of,
)
from mooring.agent.runtimes.container.state_machine import ContainerState, network_holder
from mooring.wire.agents.desired_tasks import ContainerSpec


async def start_container(
    engine: Engine,
    shared: SharedState,
    record: TaskRecord,
    container: ContainerSpec,
    role: Role,
    *,
    left: ContainerState | None,
) -> None:
    """Start a container of the task; `left` is its state in the engine, None if it has to be created."""
    full = name_of(record.task.task_id, container.name)
    if left is None:
        await _create(engine, shared, record, container, role)
    try:
        await _launch(engine, shared, container, full)
    except EngineRefused as refusal:
        # The engine may have started it in spite of a transient error.
        if isinstance(refusal, EngineTransient) or left is None or left.status != "created":
            raise
        # The remains of an interrupted start, for example by an exit of the engine, may be in the way.
        await engine.remove(full)
        await _create(engine, shared, record, container, role)
        await _launch(engine, shared, container, full)


async def _launch(engine: Engine, shared: SharedState, container: ContainerSpec, full: str) -> None:
    if await engine.initialise(full):
        await _apply_limits(engine, shared, container, full)
        if container.terminal:
            await engine.resize(full, container.terminal_rows, container.terminal_columns)
        await engine.start(full)
    else:
        await engine.start(full)
        await _apply_limits(engine, shared, container, full)


async def _apply_limits(engine: Engine, shared: SharedState, container: ContainerSpec, full: str) -> None:
    """Do what engines do not: watch for OOM kills, and limit huge pages."""
    made = await engine.seen(full)
    if made is not None and made.pid:
        shared.memory.begin(made.id, made.pid)
        with contextlib.suppress(OSError):
            hugepages.hold(cgroup_of(made.pid), {**container.slots, **container.limits})


async def _create(
    engine: Engine, shared: SharedState, record: TaskRecord, container: ContainerSpec, role: Role
) -> None:
    task = record.task
    full = name_of(task.task_id, container.name)
    prepared = PreparedResources(
        node_id=shared.node_id,
        term=shared.term(),
        memory_bytes=shared.memory_bytes,
        spares=limits.can_lower_oom_score(),
        image=record.images[container.name],
        folders=shared.paths.make_volumes(task),
        workspace=shared.paths.workspace(task.task_id) if task.upload_id is not None else None,
        secrets=shared.paths.secrets(task.task_id, container.name) if container.secrets else None,
        script=shared.paths.script(task.task_id, container.name) if container.script is not None else None,
        network=await _network(engine, shared, record, container.name, role),
    )
    config = configuration(task, container, role, prepared, engine.capabilities, shared.options)
    try:
        await engine.create(full, config)
    except EngineRefused:
        made = await engine.seen(full)
        if made is None:
            # After a kill Podman may not list a container although its name is taken until it is removed.
            await engine.remove(full)
            await engine.create(full, config)
        elif made.labels.get(TASK) != str(task.task_id):
            raise


async def _network(engine: Engine, shared: SharedState, record: TaskRecord, name: str, role: Role) -> str:
    holder = network_holder(record)
    if role == "init" or name == holder:
        return await shared.networks.join(engine, record.task.workload_id)
    found = await engine.seen(name_of(record.task.task_id, holder))
    if found is None or found.status != "running":
        return await shared.networks.join(engine, record.task.workload_id)
    return f"container:{found.id}"
