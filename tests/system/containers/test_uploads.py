"""Uploaded files in containers: in their working folder, writable, and readable after the end."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from mooring.wire.workloads.workloads import WorkloadRequest
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box


@pytest.mark.slow
def test_a_container_works_in_the_uploaded_folder_and_its_results_outlive_it(box: Box, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "pwd; id -u; cat data/value; mkdir out; cp data/value out/result; echo x >> data/value\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "value").write_text("42\n")
    client = box.client
    upload = client.upload_folder(tmp_path)
    container = {"image": BUSYBOX, "pull": "never", "command": ["sh", "run.sh"], "resources": {"cpu": "100m"}}
    for name, user in (("first", None), ("second", "1000")):
        request = {"name": name, "containers": [container | {"user": user}], "files": {"upload": str(upload.id)}}
        client.submit(WorkloadRequest.model_validate(request))
        ended = client.wait(name, timeout_seconds=120)
        output = b"".join(client.logs(name)).decode()
        assert ended.status == "SUCCEEDED", output
        assert output == f"/workspace\n{user or 0}\n42\n"
        archive = io.BytesIO(b"".join(client.fetch_files(str(ended.tasks[0].id), "out")))
        with tarfile.open(fileobj=archive) as files:
            found = files.extractfile("out/result")
            assert found is not None
            assert found.read() == b"42\n"
