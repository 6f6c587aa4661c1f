"""A full disk: requests are refused with the reason, the server and the node report it, then work continues."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: a small file system is mounted")
_MEGABYTES = 24
_BALLAST = 1 << 16


@pytest.fixture
def small_disk(servers: Servers) -> Iterator[Path]:
    """A file system of its own for the data of a server."""
    folder = servers.folder / "small"
    folder.mkdir(mode=0o711)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m,mode=0711", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    yield folder
    servers.check()
    servers.end()
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@contextmanager
def filled(folder: Path, *, leaving: int) -> Iterator[None]:
    """So many bytes are left on the disk of a folder."""
    ballast = folder / f"ballast-{leaving}"
    with ballast.open("wb", buffering=0) as file:
        try:
            while (free := os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize) > leaving:
                file.write(bytes(min(_BALLAST, free - leaving)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    yield
    ballast.unlink()


def ready(server: Server) -> dict[str, str]:
    checks: dict[str, str] = httpx.get(f"{server.url}/ready", timeout=60).json()["checks"]
    return checks


@pytest.mark.slow
@needs_root
def test_a_full_disk_is_named_in_every_response_and_work_continues_afterwards(
    servers: Servers, small_disk: Path
) -> None:
    server = servers.prepare("--node-name", "here", data=small_disk).start()
    headers = server.credential("admin")

    def submit() -> httpx.Response:
        work = {"command": ["true"], "type": "batch", "environment": {"PADDING": "x" * 30_000}}
        return httpx.post(f"{server.url}/api/sessions", json=work, headers=headers, timeout=60)

    def reason_of_the_node() -> str:
        node = httpx.get(f"{server.url}/api/nodes/here", headers=headers, timeout=60).json()
        return str(node["reason"] or "")

    with filled(small_disk, leaving=1 << 20):
        eventually(lambda: "disk nearly full" in reason_of_the_node())
        with filled(small_disk, leaving=0):
            refused = eventually(lambda: answer if (answer := submit()).status_code >= 500 else None)
            assert refused is not None
            assert (refused.status_code, refused.json()["code"]) == (503, "disk-full")
            assert "the disk of the database is full" in refused.json()["message"]
            assert refused.headers["Retry-After"]
            assert ready(server)["database"] == "the disk of the database is full"
            assert server.alive
    eventually(lambda: submit().status_code == 202)
    eventually(lambda: ready(server)["database"] == "ok")
    eventually(lambda: not reason_of_the_node())
    assert "Traceback" not in server.log
