"""Hypothetical questions: read the state, answer in a separate process, show what the caller may see."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.mirror.mirror import Mirror
from mooring.model.errors import InvalidInput, TooManyAttempts, Unavailable
from mooring.model.labels import parse_selector
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import Action, Target, may, not_there, require
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.seconds import time_of
from mooring.services.administration.pools import check
from mooring.services.queries.queries import Queries
from mooring.services.what_if.reading import Found, read_state, scenario_of
from mooring.simulation.scenario import Scenario
from mooring.simulation.what_if.answers import Answer, Effect, Question, Search, Waits
from mooring.simulation.what_if.changes import Changes
from mooring.simulation.what_if.process import Bounds, Problem
from mooring.store.core.engine import Connection
from mooring.store.tenancy import quotas
from mooring.wire.cluster.pool_changes import changed
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.cluster.what_if import (
    LimitChange,
    NodeChoice,
    SizeFound,
    SizeTry,
    WaitsView,
    WhatIfAnswer,
    WhatIfRequest,
    WorkloadEffect,
)

_log = structlog.get_logger(__name__)
_WAITING = 8
"""Questions that may wait for the one that is being answered."""
_BUSY_SECONDS = 5
_TIME_FACTOR = 5
"""An answer may take this many times its CPU time, since its process has a low priority."""
_FEWEST_SECONDS = 120
_PASSED = frozenset({"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "XDG_CACHE_HOME"})
_PASSED_PREFIXES = ("LC_", "NUMBA_", "PYTHON")
"""Variables of the environment that locate Python and the compiled kernels."""


class WhatIf:
    def __init__(self, queries: Queries, bounds: Bounds) -> None:
        self._queries = queries
        self._bounds = bounds
        self._one_at_a_time = asyncio.Lock()
        self._askers: set[UUID] = set()
        """Users with an unanswered question: each has at most one."""

    async def ask(
        self, principal: Principal, request: WhatIfRequest, cancel: Collection[UUID], shown: Collection[UUID]
    ) -> WhatIfAnswer:
        """Answer a question. `cancel` and `shown`: the workloads of the request, which the principal may change or see.

        Raise NotAllowed for changes that only admins may ask about.
        """
        check_allowed(principal, request)
        if principal.user_id in self._askers or len(self._askers) > _WAITING:
            subject = "of yours" if principal.user_id in self._askers else f"of {len(self._askers)} users"
            raise TooManyAttempts(
                f"a what-if question {subject} is not answered yet; try again in {_BUSY_SECONDS} seconds",
                code="too-many-questions",
                details={"retry_after_seconds": _BUSY_SECONDS},
            )
        self._askers.add(principal.user_id)
        try:
            async with self._one_at_a_time:
                scenario, payload = await self._queries.with_mirror(
                    partial(_read, principal, request),
                    partial(_asked, principal, request, frozenset(cancel), frozenset(shown), self._bounds),
                )
                answer = await answered(payload, self._bounds)
        finally:
            self._askers.discard(principal.user_id)
        return _shown(answer, scenario)


class _State(NamedTuple):
    mirror: Mirror
    found: Found
    limits: Sequence[tuple[Tenant, Mapping[str, int]]]


async def _read(principal: Principal, request: WhatIfRequest, connection: Connection, mirror: Mirror) -> _State:
    found = await read_state(connection, mirror, now())
    return _State(mirror, found, [await _limits(connection, principal, each) for each in request.limits])


def _asked(
    principal: Principal,
    request: WhatIfRequest,
    cancel: frozenset[UUID],
    shown: frozenset[UUID],
    bounds: Bounds,
    state: _State,
) -> tuple[Scenario, bytes]:
    """Return the scenario, and the bounds, the scenario and the question for the process that answers."""
    scenario = scenario_of(state.found, state.mirror)
    nodes = {node.name for node in scenario.nodes}
    for like in (*(each.like for each in request.add_nodes), *([request.search.like] if request.search else [])):
        if like not in nodes:
            raise not_there(f"node {like!r}")
    changes = Changes(
        add_nodes=tuple((each.like, each.count) for each in request.add_nodes),
        drain=_chosen(scenario.nodes, request.remove_nodes),
        fail=_chosen(scenario.nodes, request.fail_nodes),
        cancel=cancel,
        limits=tuple(state.limits),
        pools=_policies(scenario.pools, request.pools),
    )
    search = request.search
    visible = {
        job.number
        for job in scenario.jobs
        if job.workload is not None and is_visible(principal, job.workload, everyone=request.everyone)
    }
    asked = [job.number for job in scenario.jobs if job.workload is not None and job.workload.id in shown]
    question = Question(
        changes,
        None if search is None else Search(search.like, search.p95_wait_seconds, search.most),
        request.seconds,
        frozenset(visible | set(asked)),
        tuple(asked),
        request.limit,
    )
    return scenario, pickle.dumps((bounds, pickle.dumps((scenario, question))))


def check_allowed(principal: Principal, request: WhatIfRequest) -> None:
    """Raise NotAllowed if the principal may not ask this: what only admins may change, only admins may ask about."""
    if request.remove_nodes is not None or request.fail_nodes is not None:
        require(principal, Action.CHANGE_NODES)
    if request.pools:
        require(principal, Action.CHANGE_POOLS)


def is_visible(principal: Principal, workload: Workload, *, everyone: bool) -> bool:
    """Return whether an answer to this principal is about the workload."""
    if not everyone and workload.user_id != principal.user_id:
        return False
    target = Target(workload.domain_id, workload.project_id, workload.user_id)
    return may(principal, Action.SEE_WORK, target)


async def answered(payload: bytes, bounds: Bounds) -> Answer:
    """Return the answer of a process of its own. Raise InvalidInput if it exceeds its bounds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        # Without it, modules in the server's working directory would come before all others.
        "-P",
        "-c",
        "from mooring.simulation.what_if.process import main; main()",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(max(bounds.cpu_seconds * _TIME_FACTOR, _FEWEST_SECONDS)):
            output, problems = await process.communicate(payload)
    except TimeoutError:
        raise Unavailable("this server is too busy to answer what-if questions; try again later") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        _log.error("A what-if question could not be answered", returncode=process.returncode, output=problems[-2000:])
        raise InvalidInput(
            f"the question could not be answered within {bounds.cpu_seconds} s of CPU time and "
            f"{bounds.memory_bytes >> 20:,} MiB of memory; ask about a shorter time",
            code="what-if-too-large",
        )
    # Written by the process that was started above.
    result = pickle.loads(output)
    if isinstance(result, Problem):
        raise InvalidInput(result.message, code=result.code)
    assert isinstance(result, Answer)
    return result


def _environment() -> dict[str, str]:
    """Return the environment of the process: without the server's settings, some of which are secret."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    folders = os.pathsep.join(folder for folder in sys.path if folder)
    return {**passed, "PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1"}


async def _limits(
    connection: Connection, principal: Principal, change: LimitChange
) -> tuple[Tenant, Mapping[str, int]]:
    found = await quotas.find(
        connection,
        Scope(change.scope),
        change.tenant,
        seen=lambda target: may(principal, Action.SEE_QUOTA, target),
    )
    require(principal, Action.CHANGE_QUOTA, found.target)
    return found.tenant, {slot: slot_type(slot).parse(amount) for slot, amount in change.limits.items()}


def _chosen(nodes: Sequence[Node], choice: NodeChoice | None) -> frozenset[str]:
    """Return the chosen nodes. Raise NotFound for an unknown name, InvalidInput for a choice of no node."""
    if choice is None:
        return frozenset()
    known = {node.name for node in nodes}
    if unknown := sorted(set(choice.names) - known):
        raise not_there(f"node {unknown[0]!r}")
    found = set(choice.names)
    if choice.selector is not None:
        selector = parse_selector(choice.selector)
        found |= {node.name for node in nodes if selector.matches(node.labels)}
    if not found:
        raise InvalidInput(f"no node matches {choice.selector or 'an empty choice'!r}", code="no-such-nodes")
    return frozenset(found)


def _policies(present: Mapping[str, PoolPolicy], asked: Mapping[str, PoolChange]) -> dict[str, PoolPolicy]:
    found: dict[str, PoolPolicy] = {}
    for name, change in asked.items():
        if name not in present:
            raise not_there(f"pool {name!r}")
        found[name] = changed(present[name], change)
        check(found[name])
    return found


def _shown(answer: Answer, scenario: Scenario) -> WhatIfAnswer:
    workloads = {job.workload.id: job.workload for job in scenario.jobs if job.workload is not None}
    found = answer.found
    return WhatIfAnswer(
        at=time_of(answer.at),
        until=time_of(answer.until),
        nodes=answer.nodes,
        without=_waits(answer.waits),
        changed=_waits(answer.changed_waits),
        earlier=answer.earlier,
        later=answer.later,
        unchanged=answer.unchanged,
        stopped=answer.stopped,
        workloads=[_effect(each, workloads[each.id]) for each in answer.effects],
        workloads_left_out=answer.effects_left_out,
        search=None
        if found is None
        else SizeFound(
            nodes=found.nodes,
            tries=[SizeTry(nodes=each.nodes, p95_seconds=each.p95_wait_seconds) for each in found.tries],
        ),
        assumptions=list(answer.assumptions),
    )


def _waits(waits: Waits) -> WaitsView:
    return WaitsView(
        workloads=waits.workloads,
        started=waits.started,
        mean_seconds=waits.mean,
        median_seconds=waits.median,
        p95_seconds=waits.p95,
    )


def _effect(effect: Effect, workload: Workload) -> WorkloadEffect:
    at: Callable[[int | None], object] = lambda seconds: None if seconds is None else time_of(seconds)  # noqa: E731
    return WorkloadEffect.model_validate(
        {
            "id": effect.id,
            "name": workload.name,
            "pool": workload.pool,
            "created_at": workload.created_at,
            "running": effect.running,
            "stopped": effect.stopped,
            "cancelled": effect.cancelled,
            "start": at(effect.start),
            "changed_start": at(effect.changed_start),
            "end": at(effect.end),
            "changed_end": at(effect.changed_end),
        }
    )
