"""A volume on a real node: what one container leaves there the next one finds, until the volume is removed."""

from __future__ import annotations

import pytest

from mooring.client import Client
from mooring.model.errors import Conflict
from mooring.wire.workloads.volumes import NewVolumeRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box
from tests.system.servers import eventually


def submit(client: Client, name: str, script: str, **more: object) -> None:
    container = {
        "image": BUSYBOX,
        "pull": "never",
        "command": ["sh", "-c", script],
        "mounts": [{"volume": "data", "path": "/data"}],
        "resources": {"cpu": "100m"},
    }
    request = {"name": name, "containers": [container], "volumes": [{"name": "data", "kind": "named"}], **more}
    client.submit(WorkloadRequest.model_validate(request))


@pytest.mark.slow
def test_volume_data_survives_its_tasks_and_is_deleted_with_the_volume(box: Box) -> None:
    client = box.client
    client.create_volume(NewVolumeRequest(name="data", size="1Gi"))

    submit(
        client,
        "writer",
        "echo hello > /data/file; exec sleep 600",
        kind="deployment",
        replicas=2,
        stop_grace_seconds=1,
    )
    eventually(lambda: client.workload("writer").running == 2)
    assert (client.volume("data").status, client.volume("data").node) == ("available", "here")
    with pytest.raises(Conflict, match="mounted by writer"):
        client.remove_volume("data")
    client.remove("writer")
    eventually(lambda: client.volume("data").mounted_by == 0)

    submit(client, "reader", "cat /data/file")
    assert client.wait("reader", timeout_seconds=60).status == "SUCCEEDED"
    assert b"".join(client.logs("reader")) == b"hello\n"

    (folder,) = box.volumes.glob("*/*")
    assert (folder / "file").read_text() == "hello\n"
    client.remove_volume("data")
    eventually(lambda: not client.volumes())
    assert not folder.exists()
