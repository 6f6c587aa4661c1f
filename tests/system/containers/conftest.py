"""One machine with an engine for the tests of containers: it is looked through after each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.client.applying import Result, apply
from mooring.client.files import Document, read_documents
from tests.engine import Engine
from tests.system.conftest import Servers, running_servers
from tests.system.servers import Cli, Server, eventually


@dataclass
class Box:
    """A server whose own agent has an engine, and the ways to use it as its admin."""

    server: Server
    engine: Engine
    client: Client
    mooring: Cli

    @property
    def volumes(self) -> Path:
        """The folder of the projects' volumes on this machine."""
        return self.server.data / "agent" / "volumes"


@pytest.fixture(scope="session")
def shared_box(engine: Engine) -> Iterator[Box]:
    with running_servers() as servers:
        server = servers.start("--node-name", "here", environment={"MOORING_ENGINE": engine.socket})
        with server.client() as client:
            eventually(lambda: any("container" in node.runtimes for node in client.nodes().nodes))
            yield Box(server, engine, client, person(servers, server))


@pytest.fixture
def box(shared_box: Box) -> Iterator[Box]:
    """Remove the work that a test left running, then check engine, ledger and log for traces of it."""
    yield shared_box
    client = shared_box.client
    left = [str(workload.id) for workload in client.workloads().workloads]
    for workload in left:
        client.remove(workload)
    # Its name is the next test's only then: it is off the list at once, and out of the engine earlier than the books.
    eventually(lambda: all(client.workload(workload).ended_at for workload in left))
    eventually(lambda: not any(node.tasks for node in client.nodes().nodes))
    eventually(lambda: not shared_box.engine.containers())
    eventually(lambda: not any(volume.mounted_by for volume in client.volumes()))
    for volume in client.volumes():
        client.remove_volume(volume.name)
    eventually(lambda: not client.volumes())
    shared_box.server.assert_books_agree()
    assert "Traceback" not in shared_box.server.log


def person(servers: Servers, server: Server) -> Cli:
    """The command of the admin."""
    token = server.credential("admin")["Authorization"].removeprefix("Bearer ")
    return Cli(servers.folder / "person", {"MOORING_SERVER": server.url, "MOORING_TOKEN": token})


def document(folder: Path, text: str) -> Document:
    """The only one of a file with this text."""
    file = folder / "document.yaml"
    file.write_text(text)
    [found] = read_documents(str(file))
    return found


def write(client: Client, folder: Path, text: str) -> Result:
    """Apply a file with this text and return the result."""
    return apply(client, document(folder, text)).result
