"""Scenario files: the scenario they describe, and errors that name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.policy.defragmentation import Gain
from mooring.model.policy.pools import HeadOfLine
from mooring.model.policy.preemption import VictimScope
from mooring.model.tenancy.quotas import Scope
from mooring.simulation.engine import replay
from mooring.simulation.inputs.scenario_files.loading import read_scenario, scenario_of
from mooring.simulation.inputs.scenario_files.schema import schema
from mooring.simulation.scenario import Defragmentation, Scenario

WHOLE = """
seed: 7
until: 2d
cluster:
  - {name: gpu, count: 2, resources: {cpu: 8, memory: 32Gi, gpu: 4}, gpu_model: A100, labels: {rack: r1}}
  - {name: cpu, pool: prep, resources: {cpu: 16}}
pools:
  default:
    sequencer: fair_share
    head_of_line: strict
    preemption: {scope: project, mode: terminate}
    fair_share: {half_life_days: 3}
  prep: {profile: pack, bookings: {open_ended: refuse}}
workloads:
  - poisson:
      jobs_per_hour: 4
      duration: 1d
      kinds: [{name: train, resources: {cpu: 2, gpu: 500m}, run: 1h, project: vision, gpu_models: [A100]}]
  - lublin: {jobs: 20, processors: 8}
    pool: prep
    start: 12h
tenants:
  - {project: vision, weight: 300, limits: {gpu: 4}, guaranteed: {gpu: 2}}
"""


def load(folder: Path, text: str) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return scenario_of(read_scenario(path), folder)


def test_scenario_has_what_its_file_says(tmp_path: Path):
    scenario = load(tmp_path, WHOLE)
    policy = scenario.pools["default"]
    assert (policy.sequencer, policy.head_of_line, policy.fair_share.half_life_days) == (
        "fair_share",
        HeadOfLine.STRICT,
        3,
    )
    assert policy.preemption is not None
    assert policy.preemption.scope is VictimScope.PROJECT
    assert [node.name for node in scenario.nodes] == ["gpu-0", "gpu-1", "cpu"]
    assert {job.number for job in scenario.jobs} == set(range(len(scenario.jobs)))
    assert min(job.submitted for job in scenario.jobs if job.pool == "prep") >= 43_200
    (tenant,) = scenario.tenants
    assert (tenant.scope, tenant.limits, tenant.weight) == (Scope.PROJECT, {"gpu": 4000}, 300)
    assert scenario.until == 172_800


def test_same_seed_gives_the_same_result(tmp_path: Path):
    first, second = (replay(load(tmp_path, WHOLE)) for _ in range(2))
    assert [each.attempts for each in first.outcomes] == [each.attempts for each in second.outcomes]


def test_fault_of_a_label_hits_all_nodes_that_have_it(tmp_path: Path):
    scenario = load(tmp_path, WHOLE + "faults: [{labels: {rack: r1}, at: 1h, back: 2h}]\n")
    assert [(fault.nodes, fault.at, fault.back_at) for fault in scenario.faults] == [(("gpu-0", "gpu-1"), 3600, 7200)]


def test_defragmentation_is_read(tmp_path: Path):
    rule = "defragmentation: [{every: 6h, moves: 4, gain: drain-nodes, max_lost: 30m}]\n"
    (found,) = load(tmp_path, WHOLE + rule).defragmentation
    assert found == Defragmentation("default", 21_600, 4, Gain.DRAIN_NODES, 1800)
    with pytest.raises(InvalidInput, match=r"defragmentation\.0\.every"):
        load(tmp_path, WHOLE + "defragmentation: [{every: 0}]\n")


def test_booking_is_read(tmp_path: Path):
    booking = "bookings: [{name: lab, pool: prep, start: 1d, end: 30h, resources: {cpu: 4}, count: 2, lead: 10m}]\n"
    (found,) = load(tmp_path, WHOLE + booking).bookings
    assert (found.start, found.end, found.request, found.count, found.lead_seconds) == (
        86_400,
        108_000,
        {"cpu": 4000},
        2,
        600,
    )


SMALL = "cluster: [{resources: {cpu: 4}}]\nworkloads: [{lublin: {jobs: 2, processors: 4}}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SMALL + "pool: {}\n", "scenario.yaml: pool: Extra inputs"),
        (SMALL + "pools: {default: {sequencr: fifo}}\n", "there is no option 'sequencr'"),
        (SMALL + "pools: {default: {sequencer: fastest}}\n", "fastest"),
        (SMALL + "pools: {default: {binding: two_phase}}\n", "does not model the option 'binding'"),
        (SMALL + "pools: {default: {on_insufficient: scale_up}}\n", "does not model the value 'scale_up'"),
        (SMALL + "faults: [{nodes: [other], at: 5}]\n", "node 'other'"),
        (SMALL + "faults: [{labels: {a: b}, at: 5}]\n", "names no nodes"),
        (SMALL + "faults: [{nodes: [node], at: 5, back: 5}]\n", "ends before it begins"),
        (SMALL + "tenants: [{weight: 5}]\n", "one of user, project and domain"),
        (SMALL + "until: soon\n", "'soon' is not a duration"),
        ("workloads: [{lublin: {jobs: 2, processors: 4}}]\n", "has no nodes"),
        (SMALL.replace("lublin", "trace: x, lublin"), "one of trace, poisson and lublin"),
        ("a: [", "scenario.yaml"),
        ("- a", "not a mapping"),
        (SMALL.replace("{resources", "{file: none.csv, resources"), "one of file and resources"),
    ],
)
def test_mistake_is_named(tmp_path: Path, text: str, message: str):
    with pytest.raises(InvalidInput, match=message):
        load(tmp_path, text)


def test_schema_describes_its_fields():
    made = schema()
    assert made["properties"]["pools"]["description"].startswith("Options of pools")
    assert "$defs" in made
