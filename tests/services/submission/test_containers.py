"""Requested containers become the template of tasks, or an error that names the problem."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.model.errors import InvalidInput, NotAllowed
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.containers import (
    Container,
    Mount,
    Probe,
    Pull,
    TaskTemplate,
    Volume,
    VolumeKind,
)
from mooring.model.workloads.workload import Kind
from mooring.services.submission.containers import template_of
from mooring.services.submission.submission_context import SubmissionContext
from mooring.services.submission.translation import translate
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.workloads import WorkloadRequest

WHO = Principal(UUID(int=1), "ada", Role.USER, UUID(int=2), UUID(int=3), "AK")
SCRATCH = [{"name": "data"}]


def template(**request: Any) -> TaskTemplate:
    return template_of(WorkloadRequest.model_validate(request), Kind.SESSION, 1)


def of(container: dict[str, Any], **request: Any) -> TaskTemplate:
    return template(containers=[{"image": "nginx", **container}], **request)


def mounting(path: str, volume: str = "data") -> dict[str, Any]:
    return {"mounts": [{"volume": volume, "path": path}]}


def test_everything_that_can_be_said_of_a_container_is_translated():
    made = of(
        {
            "name": "web",
            "command": ["serve"],
            "environment": {"A": "b"},
            "working_folder": "/srv/",
            "resources": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": 2},
            "pull": "always",
            "ports": [80, 443],
            "mounts": [{"volume": "data", "path": "/data/", "read_only": True}],
            "secrets": {"key.pem": "api-key"},
            "readiness": {"path": "/ready?all=1", "port": 80, "successes": 2},
            "liveness": {"command": ["true"], "interval_seconds": 5, "timeout_seconds": 5},
            "user": "1000:staff",
            "read_only": True,
            "capabilities": ["SETUID", "CHOWN", "CHOWN"],
            "privileged": True,
            "shared_memory": "512Mi",
            "terminal": True,
        },
        volumes=[{"name": "data", "kind": "host", "path": "/data"}],
    )
    assert made.containers == (
        Container(
            name="web",
            image="nginx",
            command=("serve",),
            environment={"A": "b"},
            working_folder="/srv",
            slots={"cpu": 500, "memory": 1 << 30},
            limits={"cpu": 2000},
            pull=Pull.ALWAYS,
            ports=(80, 443),
            mounts=(Mount("data", "/data", read_only=True),),
            secrets={"key.pem": "api-key"},
            readiness=Probe(path="/ready?all=1", port=80, successes=2),
            liveness=Probe(command=("true",), interval_seconds=5, timeout_seconds=5),
            user="1000:staff",
            read_only=True,
            capabilities=("CHOWN", "SETUID"),
            privileged=True,
            shared_memory=512 << 20,
            terminal=True,
        ),
    )
    assert made.volumes == (Volume("data", VolumeKind.HOST, "/data"),)


def test_a_slot_with_only_a_limit_is_requested_in_the_same_amount():
    assert requests_of(of({"limits": {"memory": "1Gi"}})) == {"memory": 1 << 30}


def test_init_containers_count_at_their_largest_moment_and_sidecars_all_the_time():
    made = of(
        {"resources": {"cpu": 1}},
        init_containers=[
            {"name": "log", "image": "log", "sidecar": True, "resources": {"cpu": "500m"}},
            {"name": "fetch", "image": "busybox", "resources": {"cpu": 4}},
        ],
    )
    assert [(each.name, each.sidecar) for each in made.init_containers] == [("log", True), ("fetch", False)]
    assert requests_of(made) == {"cpu": 4500}


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        pytest.param({"container": mounting("/data")}, "unknown-volume", id="a mount of no volume"),
        pytest.param({"volumes": SCRATCH}, "invalid-volume", id="a volume that nobody mounts"),
        pytest.param(
            {"container": mounting("/data"), "volumes": SCRATCH * 2}, "doubled-name", id="two volumes of one name"
        ),
        pytest.param(
            {"container": mounting("/data"), "volumes": [{"name": "data", "kind": "host"}]},
            "invalid-volume",
            id="a folder of the node without its path",
        ),
        pytest.param(
            {"container": mounting("/data"), "volumes": [{"name": "data", "path": "/data"}]},
            "invalid-volume",
            id="a path of what has none",
        ),
        pytest.param(
            {
                "container": {"mounts": [{"volume": "data", "path": "/a"}, {"volume": "data", "path": "/a/"}]},
                "volumes": SCRATCH,
            },
            "invalid-mount",
            id="one mount over another",
        ),
        *(
            pytest.param({"container": mounting(path), "volumes": SCRATCH}, code, id=f"mounted at {path!r}")
            for path, code in {
                "/": "invalid-mount",
                "/proc": "invalid-mount",
                "/proc/1/": "invalid-mount",
                "/sys/fs/cgroup": "invalid-mount",
                "/dev/shm": "invalid-mount",
                "/run": "invalid-mount",
                "/run/secrets/key": "invalid-mount",
                "/data/../etc": "invalid-path",
                "/..": "invalid-path",
                "/./data": "invalid-path",
                "//proc": "invalid-path",
                "/data:/etc": "invalid-path",
                "/data\n/etc": "invalid-path",
                "/data\0": "invalid-path",
                "/data\u202e": "invalid-path",
            }.items()
        ),
        *(
            pytest.param(
                {"container": mounting("/data"), "volumes": [{"name": "data", "kind": "host", "path": path}]},
                "invalid-path",
                id=f"a folder of the node at {path!r}",
            )
            for path in ("/data/../etc", "/data/./x", "/data//x", "/data:/var/run/docker.sock")
        ),
        pytest.param({"container": {"working_folder": "../etc"}}, "invalid-path", id="a working folder outside"),
        pytest.param({"container": {"readiness": {}}}, "invalid-probe", id="a probe that asks nothing"),
        pytest.param({"container": {"readiness": {"path": "/"}}}, "invalid-probe", id="a path without a port"),
        pytest.param(
            {"container": {"readiness": {"command": ["true"], "port": 80}}}, "invalid-probe", id="two questions at once"
        ),
        pytest.param(
            {"container": {"readiness": {"port": 80, "interval_seconds": 1, "timeout_seconds": 2}}},
            "invalid-probe",
            id="an answer after the next question",
        ),
        pytest.param(
            {"container": {"liveness": {"port": 80, "successes": 2}}},
            "invalid-probe",
            id="alive at the second look",
        ),
        pytest.param({"container": {"ports": [80, 80]}}, "doubled-port", id="a port twice"),
        pytest.param(
            {"container": {"ports": [80]}, "containers": [{"name": "b", "image": "b", "ports": [80]}]},
            "doubled-port",
            id="a port in two containers",
        ),
        pytest.param(
            {"container": {"resources": {"cpu": 2}, "limits": {"cpu": 1}}},
            "request-above-limit",
            id="above its limit",
        ),
        pytest.param(
            {"container": {"resources": {"memory": "1Gi"}, "shared_memory": "2Gi"}},
            "invalid-request",
            id="more shared memory than memory",
        ),
        pytest.param(
            {"init_containers": [{"name": "main", "image": "busybox"}]}, "doubled-name", id="one name before and after"
        ),
        pytest.param({"init_containers": [{"name": "a", "command": ["x"]}]}, "mixed-runtimes", id="a process before"),
        pytest.param(
            {"init_containers": [{"name": "a", "image": "a", "environment": {"MOORING_X": "y"}}]},
            "reserved-environment",
            id="a name of our own before",
        ),
        *(
            pytest.param(
                {"init_containers": [{"name": "a", "image": "a", **said}]},
                "invalid-init-container",
                id=f"{next(iter(said))} of what ends before the start",
            )
            for said in ({"ports": [80]}, {"readiness": {"port": 80}}, {"liveness": {"port": 80}}, {"terminal": True})
        ),
    ],
)
def test_invalid_containers_are_rejected(request_body: dict[str, Any], code: str):
    first = {"image": "nginx", **request_body.pop("container", {})}
    request_body["containers"] = [first, *request_body.get("containers", [])]
    with pytest.raises(InvalidInput) as refused:
        template(**request_body)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "said",
    [
        {"limits": {"cpu": 1}},
        {"pull": "always"},
        {"ports": [80]},
        {"secrets": {"key": "key"}},
        {"readiness": {"port": 80}},
        {"liveness": {"command": ["true"]}},
        {"user": "1000"},
        {"read_only": True},
        {"capabilities": ["CHOWN"]},
        {"privileged": True},
        {"shared_memory": "1Gi"},
    ],
    ids=lambda said: next(iter(said)),
)
def test_container_fields_are_refused_for_processes(said: dict[str, Any]):
    with pytest.raises(InvalidInput, match=next(iter(said))) as refused:
        template(containers=[{"command": ["true"], **said}])
    assert refused.value.code == "containers-only"


def test_processes_have_terminals_inputs_and_scripts():
    [made] = template(containers=[{"terminal": True, "stdin": True, "script": "#!/bin/sh\n"}]).containers
    assert (made.terminal, made.stdin, made.script, made.command) == (True, True, "#!/bin/sh\n", ())


def test_processes_have_neither_volumes_nor_init_containers():
    process = [{"command": ["true"]}]
    for more in ({"volumes": SCRATCH}, {"init_containers": [{"name": "a", "command": ["true"]}]}):
        with pytest.raises(InvalidInput) as refused:
            template(containers=process, **more)
        assert refused.value.code == "containers-only"


def in_pool(policy: PoolPolicy, container: dict[str, Any], **request: Any) -> NewWorkload:
    pool = Pool(UUID(int=9), "lab", policy, frozenset({"container"}), simulated=False)
    body = {"containers": [{"image": "nginx", **container}], **request}
    return translate(WorkloadRequest.model_validate(body), SubmissionContext(WHO, [pool]))[0]


def test_a_container_is_privileged_only_where_its_pool_allows_that():
    policy = PoolPolicy("locality")
    with pytest.raises(NotAllowed) as refused:
        in_pool(policy, {"privileged": True})
    assert refused.value.code == "privileged-not-allowed"
    assert in_pool(replace(policy, privileged=True), {"privileged": True}).template.containers[0].privileged


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/data", True),
        ("/data/sets/one", True),
        ("/srv/models/", True),
        ("/srv", False),
        ("/database", False),
        ("/", False),
        ("/var/run", False),
    ],
)
def test_folders_of_a_node_are_mounted_only_where_its_pool_allows_that(path: str, allowed: bool):
    policy = PoolPolicy("locality", host_paths=("/data", "/srv/models"))
    volumes = [{"name": "data", "kind": "host", "path": path}]
    if allowed:
        assert in_pool(policy, mounting("/data"), volumes=volumes).template.volumes[0].path == path.rstrip("/")
    else:
        with pytest.raises(NotAllowed) as refused:
            in_pool(policy, mounting("/data"), volumes=volumes)
        assert refused.value.code == "host-path-not-allowed"
