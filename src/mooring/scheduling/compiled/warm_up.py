"""Compile every kernel by using it once, or load it as compiled before."""

from __future__ import annotations

from mooring.model.nodes import Node
from mooring.model.preemption import Preemption
from mooring.model.workloads import LONG_AGO, Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.compiled_preemption import CompiledPreemptor
from mooring.scheduling.engine import Batch, Engine
from mooring.scheduling.preemption import Preemptor
from mooring.scheduling.profiles import Registry
from mooring.scheduling.residents import Residents


def warm_up() -> None:
    engine = Engine(Cluster([Node(name="any", allocatable={"cpu": 1000})]), Registry().profile())
    engine.sync()
    workload = Workload(name="any", request={"cpu": 1})
    code = engine.code_of(workload)
    assert code is not None
    batch = Batch()
    batch.add(workload, code, 1)
    engine.place(batch)
    preemptor = Preemptor(engine.cluster, engine.profile, Residents(), Preemption())
    compiled = CompiledPreemptor(engine, preemptor)
    compiled.sync()
    compiled.plan([(workload, code)], LONG_AGO)
