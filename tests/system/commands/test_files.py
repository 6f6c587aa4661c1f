"""Workload files against a real server: every example, and the effects of apply, diff and delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mooring.cli.app import app
from mooring.client import Client
from mooring.client.applying import Result, State, apply, compare, delete
from mooring.client.files import read_documents
from mooring.wire.workloads.workloads import WorkloadDetail
from tests.system.servers import PASSWORD, Server, eventually, running_server, workspace

EXAMPLES = Path(__file__).parents[3] / "examples"
EXPECTED = {
    "batch.yaml": {"prepare": "RUNNING", "work": "PENDING"},
    "lab.yaml": {"networks-1": "PENDING"},
    "multi-node.yaml": {"train": "RUNNING"},
    "notebook.yaml": {"notebook": "RUNNING"},
    "web.yaml": {"web": "RUNNING"},
}
"""The final status of each on simulated nodes, where sessions do not end by themselves."""
Mooring = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with workspace() as folder, running_server(folder / "data", "--simulate", "5", "--no-agent") as started:
        yield started
        assert "Traceback" not in started.log


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def mooring(server: Server, client: Client, monkeypatch: pytest.MonkeyPatch) -> Mooring:
    monkeypatch.setenv("MOORING_SERVER", server.url)
    monkeypatch.setenv("MOORING_TOKEN", client.login("admin", PASSWORD).access_token)

    def run(*words: str, given: str | None = None, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(words), input=given, prog_name="mooring")
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_every_example_is_tested():
    assert {file.name for file in EXAMPLES.glob("*.yaml")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_applying_an_example_again_changes_nothing(client: Client, name: str):
    documents, expected = read_documents(str(EXAMPLES / name)), EXPECTED[name]

    def found() -> list[WorkloadDetail]:
        return [client.workload(each) for each in expected]

    assert {compare(client, each).state for each in documents} == {State.MISSING}
    assert {apply(client, each).result for each in documents} == {Result.CREATED}
    eventually(lambda: [each.status for each in found()] == list(expected.values()))
    ids = [each.id for each in found()]
    assert {compare(client, each).state for each in documents} == {State.EQUAL}
    assert {apply(client, each).result for each in documents} == {Result.UNCHANGED}
    assert [each.id for each in found()] == ids
    assert all(delete(client, each) for each in documents)
    eventually(lambda: all(each.ended_at for each in found()))
    assert not any(delete(client, each) for each in documents)
    assert {compare(client, each).state for each in documents} == {State.MISSING}


def test_differences_are_shown_and_applied_one_by_one(mooring: Mooring, client: Client):
    text = (
        "kind: deployment\nname: api\npool: simulated\nreplicas: 2\nrollout: {surge: 100%}\n"
        "containers: [{image: 'nginx:1'}]\n"
    )
    assert mooring("apply", "-f", "-", given=text) == "deployment api: created\n"
    eventually(lambda: client.workload("api").running == 2)
    assert mooring("diff", "-f", "-", given=text) == ""
    changed = text.replace("replicas: 2", "replicas: 3").replace("nginx:1", "nginx:2").replace("100%", "1")
    assert mooring("diff", "-f", "-", given=changed, code=1) == (
        "~ deployment api\n"
        "    containers.main.image: nginx:1 -> nginx:2\n"
        "    replicas: 2 -> 3\n"
        "    rollout.surge: 100% -> 1\n"
    )
    assert mooring("apply", "-f", "-", given=changed) == "deployment api: updated\n"
    assert mooring("apply", "-f", "-", given=changed) == "deployment api: unchanged\n"
    last = client.revisions("api").revisions[-1]
    assert (last.images, last.cause) == (["nginx:2"], "applied: containers.main.image, replicas, rollout.surge")
    assert client.workload("api").replicas == 3
    unsaid = "".join(line for line in changed.splitlines(keepends=True) if "replicas" not in line)
    assert mooring("apply", "-f", "-", given=unsaid) == "deployment api: unchanged\n"
    other = changed + "priority: 20\n"
    assert "differs in priority, which cannot be changed" in mooring("apply", "-f", "-", given=other, code=1)
    mooring("delete", "-f", "-", "--yes", given=text)


def test_a_rejected_document_does_not_stop_the_others(mooring: Mooring, client: Client):
    session = "kind: session\nname: {name}\npriority: {priority}\ncontainers: [{{image: nginx}}]\n"
    one, two, three = (session.format(name=name, priority=10) for name in ("one", "two", "three"))
    mooring("apply", "-f", "-", given=two)
    changed = f"{one}---\n{session.format(name='two', priority=11)}---\n{three}"
    received = mooring("apply", "-f", "-", given=changed, code=1)
    assert "session one: created\n" in received
    assert "standard input, document 2, line 6:\nerror: cannot-change: session 'two' exists and differs in" in received
    assert "session three: created\n" in received
    assert client.workload("two").priority == 10
    mooring("delete", "-f", "-", "--yes", given=changed)


def test_a_change_that_would_be_rejected_is_an_error_and_not_a_difference(mooring: Mooring):
    text = "kind: session\nname: astray\npool: nowhere\ncontainers: [{image: nginx}]\n"
    received = mooring("apply", "-f", "-", given=text, code=2)
    assert "there is no pool 'nowhere'" in received
    assert mooring("diff", "-f", "-", given=text, code=2) == received


def test_an_ended_session_is_recreated_only_on_request(mooring: Mooring, client: Client):
    text = "kind: session\nname: once\npool: simulated\ncontainers: [{image: nginx}]\n"
    mooring("apply", "-f", "-", given=text)
    first = client.workload("once").id
    mooring("cancel", "once")
    eventually(lambda: client.workload("once").ended_at)
    assert mooring("apply", "-f", "-", given=text) == "session once: ended (cancelled); --again creates it again\n"
    assert mooring("diff", "-f", "-", given=text) == ""
    assert mooring("apply", "-f", "-", "--again", given=text) == "session once: created\n"
    assert client.workload("once").id != first


def test_a_lab_without_capacity_names_its_document_and_what_would_fit(mooring: Mooring):
    text = (EXAMPLES / "lab.yaml").read_text().replace("replicas: 5", "replicas: 900")
    received = mooring("apply", "-f", "-", given=text.replace("networks-1", "networks-3"), code=1).splitlines()
    assert received[0] == "standard input, document 1, line 5:"
    assert received[1].startswith("error: no-room: there is no capacity for it at that time; it fits with ")
    assert received[2].startswith("hint: try replicas: ")


def test_a_lab_in_another_window_differs(mooring: Mooring, client: Client):
    text = (EXAMPLES / "lab.yaml").read_text().replace("networks-1", "networks-2")
    mooring("apply", "-f", "-", given=text)
    later = text.replace("duration: 3h", "duration: 4h")
    assert "    end: 2030-01-14T11:00:00+00:00 -> 2030-01-14T12:00:00+00:00\n" in mooring(
        "diff", "-f", "-", given=later, code=1
    )
    assert "delete it first" in mooring("apply", "-f", "-", given=later, code=1)
    assert mooring("diff", "-f", "-", given=text) == ""
