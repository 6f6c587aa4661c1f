"""Defragmentation of the states that policies leave on the published openb workloads, when 100 % has been requested.

Refused tasks are the pending work. The figures are the GPUs that plans of 10, 25, 50 and 100 moves recover, and their
processor seconds without the bound.

MOORING_TRACES names the folder of the traces. MOORING_DEFRAG_STATES (default: default:locality,default:gpu,
cpu200:locality,gpushare40:locality,multigpu40:locality) are the states as variant and profile, separated by commas.
"""

from __future__ import annotations

import os
from time import process_time

from benchmarks.packing import arrivals, by_seed, nodes, rows, workload
from mooring import Scheduler, Workload
from mooring.model.policy.defragmentation import PlacedTask
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import compilation
from mooring.scheduling.defragmentation.planner import plan
from mooring.scheduling.plugins.profiles import Registry

STATES = "default:locality,default:gpu,cpu200:locality,gpushare40:locality,multigpu40:locality"
MOVES = (10, 25, 50, 100)
SEED = 42


def run() -> dict[str, float]:
    compilation.wait()
    figures: dict[str, float] = {}
    for state in (os.environ.get("MOORING_DEFRAG_STATES") or STATES).split(","):
        variant, profile = state.split(":")
        cluster, placed, refused = reached(variant, profile)
        name = f"{variant}_{profile}"
        figures[f"{name}_refused_gpus"] = sum(each.request.get("gpu", 0) for each in refused) / 1000
        for most in MOVES:
            began = process_time()
            copy, rules = copy_of(cluster), Registry().profile(profile)
            found = plan(copy, rules, "default", placed, refused, most=most, with_bound=False)
            figures[f"{name}_{most}_gpus"] = found.gained
            figures[f"{name}_{most}_seconds"] = process_time() - began
    return figures


def reached(variant: str, profile: str) -> tuple[Cluster, list[PlacedTask], list[Workload]]:
    """Return the cluster at 100 % requested, the tasks on it, and the refused workloads."""
    pods = [workload(pod) for pod in rows(f"pods_{variant}.csv.gz")]
    scheduler = Scheduler(nodes(by_seed(f"tiebreak_{variant}.txt.gz")[SEED]), profile=Registry().profile(profile))
    capacity = sum(node.allocatable.get("gpu", 0) for node in scheduler.cluster.nodes if node is not None)
    arriving: list[Workload] = []
    requested = 0
    for row in arrivals(variant)[SEED]:
        if requested >= capacity:
            break
        arriving.append(pods[row])
        requested += pods[row].request.get("gpu", 0)
    placed: list[PlacedTask] = []
    refused: list[Workload] = []
    for first in range(0, len(arriving), 500):
        for decision in scheduler.place(arriving[first : first + 500]).decisions:
            if not decision.placements:
                refused.append(decision.workload)
            placed += [
                PlacedTask(each.task_id, each.node_id, decision.workload, decision.workload.constraints, each.devices)
                for each in decision.placements
            ]
    return scheduler.cluster, placed, refused
