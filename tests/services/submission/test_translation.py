"""A request as it travels becomes what is written, or an error that waiting cannot cure."""

import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources import slots
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import SlotType
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.containers import Restart
from mooring.model.workloads.lifetime.rollouts import Rollout
from mooring.model.workloads.workload import Kind, OnInsufficient
from mooring.services.submission.pool_choice import choose_pool
from mooring.services.submission.submission_context import SubmissionContext
from mooring.services.submission.translation import translate
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.workloads import WorkloadRequest

WHO = Principal(UUID(int=1), "ada", Role.USER, UUID(int=2), UUID(int=3), "AK")


def pool(name: str, *runtimes: str, simulated: bool = False) -> Pool:
    return Pool(UUID(bytes=name.ljust(16).encode()), name, PoolPolicy("locality"), frozenset(runtimes), simulated)


POOLS = [pool("default", "process"), pool("images", "container"), pool("simulated", "container", simulated=True)]


GPU: dict[str, Any] = {"containers": [{"command": ["true"], "resources": {"gpu": "0.5"}}]}


def translated(pools: list[Pool] = POOLS, **request: Any) -> NewWorkload:
    body = {"containers": [{"command": ["true"]}], **request}
    return translate(WorkloadRequest.model_validate(body), SubmissionContext(WHO, pools))[0]


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        pytest.param({"pool": "nowhere"}, "unknown-pool", id="unknown pool"),
        pytest.param({"pool": "simulated"}, "runtime-not-allowed", id="a process in a pool of containers"),
        pytest.param(
            {"containers": [{"name": "a", "image": "nginx"}, {"name": "b", "command": ["true"]}]},
            "mixed-runtimes",
            id="an image beside none",
        ),
        pytest.param(
            {"containers": [{"command": ["true"]}, {"command": ["true"]}]}, "doubled-name", id="two of one name"
        ),
        pytest.param({"containers": [{}]}, "nothing-to-run", id="no image and no command"),
        pytest.param({"containers": [{"image": "a/../b"}]}, "invalid-image", id="an image outside of its registry"),
        pytest.param({"containers": [{"image": "Nginx"}]}, "invalid-image", id="an image in upper case"),
        pytest.param(
            {"containers": [{"command": ["x"], "environment": {"MOORING_TASK_ID": "1"}}]},
            "reserved-environment",
            id="a name of our own",
        ),
        pytest.param(
            {"containers": [{"command": ["x"], "resources": {"cpu": "1u"}}]}, "inexact-quantity", id="too fine"
        ),
        pytest.param(
            {"containers": [{"command": ["x"], "resources": {"cpu": "-1"}}]}, "invalid-quantity", id="negative"
        ),
        pytest.param(
            {"containers": [{"command": ["x"], "resources": {"memory": "two"}}]}, "invalid-quantity", id="no number"
        ),
        pytest.param(
            {"containers": [{"command": ["x"], "resources": {"memory": "5Ei"}}], "replicas": 2},
            "quantity-too-large",
            id="too much together",
        ),
        pytest.param({"rollout": {"surge": 1}}, "not-a-deployment", id="a session that is rolled out"),
        pytest.param(
            {"kind": "deployment", "rollout": {"surge": 0}}, "invalid-rollout", id="nothing could ever be replaced"
        ),
        pytest.param({"min_tasks": 3, "replicas": 2}, "invalid-gang", id="more at once than there are"),
        pytest.param({"min_available": 2}, "invalid-gang", id="more to stay than there are"),
        pytest.param({"min_tasks": 1, "gang": True, "replicas": 2}, "invalid-gang", id="all and some at once"),
        pytest.param({"pack": ["zone", "zone"]}, "invalid-gang", id="one domain in itself"),
        pytest.param({"pack": ["a/b/c"]}, "invalid-label", id="packed by no label"),
        pytest.param({"single_node": True, "pack": ["rack"]}, "invalid-gang", id="nearer than one node"),
        pytest.param(
            {"single_node": True, "replicas": 3, "max_per_node": 2}, "invalid-gang", id="more than a node may have"
        ),
        pytest.param(
            {"single_node": True, "replicas": 2, "placement": {"host_ports": [{"port": 80}]}},
            "invalid-gang",
            id="one port for two on one node",
        ),
        pytest.param(
            {"single_node": True, "replicas": 2, "group": {"name": "g", "enforcement": "strict"}},
            "invalid-gang",
            id="strictly apart on one node",
        ),
        pytest.param(
            {"placement": {"devices": [{"models": ["A100"]}]}}, "invalid-devices", id="a model of devices and no device"
        ),
        pytest.param(
            {**GPU, "placement": {"devices": [{"models": ["A100"]}, {"memory": "8Gi"}]}},
            "invalid-devices",
            id="one slot described twice",
        ),
        pytest.param(
            {**GPU, "placement": {"devices": [{"memory": "much"}]}}, "invalid-quantity", id="no amount of memory"
        ),
        pytest.param({"labels": {"mooring/group": "x"}}, "reserved-label", id="a label of our own"),
        pytest.param(
            {"placement": {"affinity": [{"labels": {"mooring/group": "x"}}]}}, "reserved-label", id="to our own label"
        ),
        pytest.param(
            {"containers": [{"name": n, "command": ["x"], "resources": {"memory": "5Ei"}} for n in ("a", "b")]},
            "quantity-too-large",
            id="too much in one task",
        ),
    ],
)
def test_violations_that_waiting_cannot_cure_are_refused(request_body: dict[str, Any], code: str):
    with pytest.raises(InvalidInput) as refused:
        translated(**request_body)
    assert refused.value.code == code


def test_models_and_memory_of_devices_are_demanded_slot_by_slot():
    asked = {"devices": [{"models": ["A100", "H100"], "memory": "10Gi"}]}
    assert translated(**GPU, placement=asked).constraints.devices == (
        DeviceDemand("gpu", frozenset({"A100", "H100"}), 10 << 30),
    )


def test_an_amount_between_two_quanta_is_refused_and_the_quantum_named(monkeypatch: pytest.MonkeyPatch):
    hundredths = SlotType("gpu", "milli", devices=True, quantum=10)
    monkeypatch.setitem(slots._BY_NAME, "gpu", hundredths)
    body: dict[str, Any] = {"containers": [{"command": ["true"], "resources": {"gpu": "0.255"}}]}
    with pytest.raises(InvalidInput, match=re.escape("gpu: 0.255 is not a multiple of 0.01")) as refused:
        translated(**body)
    assert refused.value.code == "invalid-quantum"
    body["containers"][0]["resources"] = {"gpu": "0.25"}
    assert requests_of(translated(**body).template)["gpu"] == 250


def test_a_runtime_that_no_pool_offers_is_refused():
    with pytest.raises(InvalidInput) as refused:
        translated([pool("default", "process")], containers=[{"image": "nginx"}])
    assert refused.value.code == "runtime-not-offered"
    with pytest.raises(InvalidInput) as refused:
        translated([pool("boxes", "container")])
    assert refused.value.code == "runtime-not-offered"


@pytest.mark.parametrize("runtime", ["container", "process", None])
def test_a_simulated_pool_is_taken_only_if_it_is_named(runtime: str | None):
    everything = frozenset({"container", "process"})
    simulated, real = pool("simulated", *everything, simulated=True), pool("z-real", *everything)
    with pytest.raises(InvalidInput, match="name the pool 'simulated'") as refused:
        choose_pool(None, runtime, [simulated], offered={})
    assert refused.value.code == "runtime-not-offered"
    offered = {simulated.id: everything, real.id: everything}
    assert choose_pool(None, runtime, [simulated, real], offered=offered) is real
    assert choose_pool("simulated", runtime, [simulated, real], offered=offered) is simulated


@pytest.mark.parametrize("runtime", ["container", "process", None])
def test_work_is_simulated_without_naming_the_pool_where_all_nodes_are_simulated(runtime: str | None):
    everything = frozenset({"container", "process"})
    simulated, real = pool("simulated", *everything, simulated=True), pool("a-real", *everything)
    assert choose_pool(None, runtime, [real, simulated], offered={simulated.id: everything}) is simulated


def test_an_image_is_refused_where_no_node_has_a_container_engine():
    real, simulated = pool("real", "container", "process"), pool("simulated", "container", simulated=True)
    offered = {real.id: frozenset({"process"}), simulated.id: frozenset({"container"})}
    for name in (None, "real"):
        with pytest.raises(InvalidInput, match=r"container engine.*name the pool 'simulated'") as refused:
            choose_pool(name, "container", [real, simulated], offered=offered)
        assert refused.value.code == "runtime-not-offered"
    with pytest.raises(InvalidInput, match="container engine") as refused:
        choose_pool(None, "container", [real], offered=offered)
    assert "simulate" not in refused.value.message
    assert choose_pool(None, "process", [real, simulated], offered=offered) is real
    assert choose_pool("simulated", "container", [real, simulated], offered=offered) is simulated


def test_an_image_waits_for_the_first_node_of_a_pool():
    real = pool("real", "container", "process")
    assert choose_pool(None, "container", [real], offered={}) is real
    assert choose_pool("real", "container", [real], offered={}) is real


def test_a_pool_with_a_node_that_has_the_runtime_comes_before_all_others():
    processes, containers = pool("a", "container", "process"), pool("b", "container", "process")
    offered = {processes.id: frozenset({"process"}), containers.id: frozenset({"container", "process"})}
    assert choose_pool(None, "container", [processes, containers], offered=offered) is containers
    assert choose_pool(None, "process", [processes, containers], offered=offered) is processes


def test_among_real_pools_the_first_name_wins():
    pools = [pool("b", "process"), pool("a", "process")]
    assert choose_pool(None, "process", pools).name == "a"


def test_a_session_and_a_deployment_restart_differently():
    assert translated().template.restart is Restart.NEVER
    assert translated(kind="deployment").template.restart is Restart.ALWAYS
    assert translated(kind="deployment", restart="never").template.restart is Restart.NEVER


def test_the_rollout_policy_of_a_deployment_is_submitted_with_it():
    rollout = translated(kind="deployment", rollout={"unavailable": "25%"}).rollout
    assert rollout == Rollout(unavailable="25%")
    assert translated(kind="deployment").rollout is None


def test_the_fields_of_a_request_are_written():
    new = translated(
        name="web",
        kind="deployment",
        replicas=3,
        containers=[
            {"name": "a", "command": ["x"], "resources": {"cpu": "500m", "memory": "1Gi"}},
            {"name": "b", "command": ["y"], "resources": {"cpu": 1}},
        ],
        on_insufficient="fail",
        max_per_node=2,
        region="eu-west",
        priority=7,
    )
    assert (new.name, new.kind, new.type, new.replicas) == ("web", Kind.DEPLOYMENT, "compute", 3)
    assert requests_of(new.template) == {"cpu": 1500, "memory": 2**30}
    # Work that does not wait gets all tasks or none.
    assert (new.on_insufficient, new.gang) == (OnInsufficient.FAIL, True)
    assert (new.max_per_node, new.region, new.priority) == (2, "eu-west", 7)
    assert len(set(new.task_ids)) == 3


def test_on_insufficient_defaults_to_that_of_the_pool():
    fails = replace(POOLS[0], policy=PoolPolicy("locality", on_insufficient=OnInsufficient.FAIL))
    new = translated([fails])
    assert (new.on_insufficient, new.gang) == (OnInsufficient.FAIL, True)
    assert translated([fails], on_insufficient="wait").on_insufficient is OnInsufficient.WAIT
    assert translated().on_insufficient is OnInsufficient.WAIT


def test_gang_options_are_written():
    new = translated(replicas=4, min_tasks=3, pack=["zone", "rack"], min_available=2, preempts=False, preemptible=False)
    assert (new.min_tasks, new.pack, new.single_node, new.gang) == (3, ("zone", "rack"), False, False)
    assert (new.min_available, new.preempts, new.preemptible) == (2, False, False)
    assert translated(replicas=2, single_node=True).single_node
    # With min_tasks, work that does not wait may start without the others.
    assert not translated(replicas=2, min_tasks=1, on_insufficient="fail").gang


def test_a_group_becomes_constraints_that_know_its_owner():
    strict = translated(group={"name": "g", "enforcement": "strict"})
    assert strict.constraints.labels == (("mooring/group", f"{WHO.user_id.hex}.g"),)
    assert [term.topology_key for term in strict.constraints.anti_affinity] == ["metadata.name"]
    assert (strict.labels, strict.spread) == ({}, True)
    packed = translated(group={"name": "g", "direction": "pack"})
    assert len(packed.constraints.preferred_tasks) == 1
    # Its own tasks are to be together, too.
    assert not packed.spread


@pytest.mark.parametrize(
    ("container", "stem"),
    [
        ({"image": "registry.example/team/nginx:1.2"}, "nginx"),
        ({"image": "nginx"}, "nginx"),
        ({"command": ["NGINX"]}, "nginx"),
        ({"command": ["/usr/bin/python3.11"]}, "python311"),
        ({"command": ["/usr/bin/___"]}, "task"),
        ({"command": ["x" * 99]}, "x" * 20),
        ({"script": "echo hello"}, "script"),
        ({"script": "echo hello", "command": ["train.sh", "fast"]}, "trainsh"),
    ],
)
def test_a_generated_name_is_derived_from_the_command(container: dict[str, Any], stem: str):
    name = translated(containers=[container]).name
    assert re.fullmatch(f"{stem}-[0-9a-f]{{8}}", name)


def test_placement_knows_the_images_of_a_task_by_their_whole_names() -> None:
    new = translated(containers=[{"image": "nginx"}, {"name": "log", "image": "ghcr.io/org/log:2"}])
    assert new.constraints.images == ("docker.io/library/nginx:latest", "ghcr.io/org/log:2")
    assert new.template.containers[0].image == "nginx"


def with_defaults(served: frozenset[str] | None = None, **request: Any) -> dict[str, int]:
    body = {"containers": [{"command": ["true"]}], **request}
    policy = replace(POOLS[0].policy, default_cpu=2000, default_memory=3 << 30)
    chosen = replace(POOLS[0], policy=policy)
    context = SubmissionContext(WHO, [chosen], served={} if served is None else {chosen.id: served})
    return requests_of(translate(WorkloadRequest.model_validate(body), context)[0].template)


def test_work_without_a_request_gets_one_core_and_one_gibibyte_by_default():
    assert requests_of(translated().template) == {"cpu": 1000, "memory": 1 << 30}


@pytest.mark.parametrize("kind", ["session", "deployment"])
def test_work_without_a_request_gets_the_default_request_of_its_pool(kind: str):
    assert with_defaults(kind=kind, replicas=3) == {"cpu": 2000, "memory": 3 << 30}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"resources": {"cpu": 0}}, {"cpu": 0, "memory": 3 << 30}),
        ({"resources": {"cpu": "0", "memory": "0"}}, {"cpu": 0, "memory": 0}),
        ({"resources": {"memory": "1Mi"}}, {"cpu": 2000, "memory": 1 << 20}),
        ({"resources": {"gpu": 1}}, {"cpu": 2000, "memory": 3 << 30, "gpu": 1000}),
    ],
)
def test_an_explicit_request_counts_even_if_it_is_zero(container: dict[str, Any], expected: dict[str, int]):
    assert with_defaults(containers=[{"command": ["true"], **container}]) == expected


def test_a_task_gets_one_default_request_however_many_containers_it_has():
    containers = [{"name": "a", "command": ["true"]}, {"name": "b", "command": ["true"]}]
    assert with_defaults(containers=containers) == {"cpu": 2000, "memory": 3 << 30}
    containers[1]["resources"] = {"cpu": "500m"}  # type: ignore[assignment]
    assert with_defaults(containers=containers) == {"cpu": 500, "memory": 3 << 30}


def test_a_default_request_is_left_out_where_no_node_has_the_slot():
    assert with_defaults(frozenset({"cpu"})) == {"cpu": 2000}


def test_shared_memory_beyond_the_default_memory_is_refused():
    body = {"image": "nginx", "shared_memory": "2Gi"}
    with pytest.raises(InvalidInput, match="default request of 1Gi"):
        translated(containers=[body])
    translated(containers=[{**body, "resources": {"memory": "2Gi"}}])
