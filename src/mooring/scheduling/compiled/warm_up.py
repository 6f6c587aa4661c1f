"""Compile every kernel by calling it once, or load it from the cache."""

from __future__ import annotations

from mooring.model.nodes.node import Node
from mooring.model.policy.preemption import Preemption
from mooring.model.workloads.workload import LONG_AGO, Workload
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.compiled.placement_batch import Batch
from mooring.scheduling.compiled.preemption import CompiledPreemptor
from mooring.scheduling.plugins.profiles import Registry
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.preemption.running_tasks import RunningTasks


def warm_up() -> None:
    engine = CompiledEngine(Cluster([Node(name="any", allocatable={"cpu": 1000})]), Registry().profile())
    engine.sync()
    workload = Workload(name="any", request={"cpu": 1})
    code = engine.code_of(workload)
    assert code is not None
    batch = Batch()
    batch.add(workload, code, 1)
    engine.place(batch)
    preemptor = Preemptor(engine.cluster, engine.profile, RunningTasks(), Preemption())
    compiled = CompiledPreemptor(engine, preemptor)
    compiled.sync()
    compiled.plan([(workload, code)], LONG_AGO)
