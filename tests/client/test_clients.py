"""Both clients over real HTTP: what is sent, what comes back, and what is raised."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mooring import __version__
from mooring.client import AsyncClient, Client
from mooring.client.answers import read_answer, read_error
from mooring.client.operations import bookings, scaling, tenancy
from mooring.client.operations import core as ops
from mooring.client.retry_budget import RetryBudget
from mooring.model.errors import (
    Conflict,
    InvalidInput,
    MooringError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooManyAttempts,
    Unavailable,
)
from mooring.wire import versions
from mooring.wire.cluster.nodes import JoinTokenRequest, NodeRequest, TaintsChange
from mooring.wire.tenancy.users import UserChange, UserRequest
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.workload_fields import SessionRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.client.fake_server import FakeServer, Refusal, failed, running, succeeded

PROCESS = WorkloadRequest(name="hello", containers=[ContainerRequest(command=["echo", "hello"])])


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client(server.url, token=server.token()) as made:
        yield made


class Both:
    """The same calls through either client."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        self.kind, self.args, self.kwargs = kind, args, kwargs

    async def call(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            with Client(*self.args, **self.kwargs) as client:
                return getattr(client, operation)(*args, **kwargs)
        async with AsyncClient(*self.args, **self.kwargs) as client:
            return await getattr(client, operation)(*args, **kwargs)

    async def logs(self, *args: Any, **kwargs: Any) -> bytes:
        if self.kind == "sync":
            with Client(*self.args, **self.kwargs) as client:
                return b"".join(client.logs(*args, **kwargs))
        async with AsyncClient(*self.args, **self.kwargs) as client:
            return b"".join([piece async for piece in client.logs(*args, **kwargs)])


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, server: FakeServer) -> Both:
    return Both(request.param, server.url, token=server.token())


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_every_operation_of_the_table_is_a_method_of_both_clients() -> None:
    operations = {
        name
        for table in (ops, tenancy, bookings, scaling)
        for name, made in vars(table).items()
        if callable(made) and not name.startswith("_") and getattr(made, "__module__", "") == table.__name__
    }
    operations -= {"log_in", "renew"}
    assert {"submit", "create_keypair", "book"} <= operations
    for client in (Client, AsyncClient):
        assert not [name for name in operations if not hasattr(client, name)]


async def test_a_workload_goes_from_submission_to_its_end(server: FakeServer, both: Both) -> None:
    server.plan = [running, failed(3)]
    accepted = await both.call("submit", PROCESS)
    assert accepted.status == "PENDING"
    assert (await both.call("wait", accepted.name, "changed", version=1)).status == "RUNNING"
    ended = await both.call("wait", accepted.name, "ended", version=2)
    assert (ended.status, ended.tasks[0].exit_code) == ("FAILED", 3)
    assert [row.new_status for row in (await both.call("history", "hello")).history] == ["PENDING", "RUNNING"]
    assert (await both.call("remove", "hello")).removed


async def test_a_session_is_created_extended_and_cancelled(server: FakeServer, both: Both) -> None:
    starts_at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    request = SessionRequest(name="train", type="batch", command=["true"], cluster_size=2, starts_at=starts_at)
    accepted = await both.call("create_session", request)
    assert server.last("POST", "/api/sessions").body["starts_at"] == "2026-05-01T12:00:00Z"
    assert [one.name for one in (await both.call("sessions", type="batch")).workloads] == [accepted.name]
    assert (await both.call("extend", "train", time=60)).time_limit_seconds == 60
    assert (await both.call("extend", "train", by=30)).time_limit_seconds == 90
    assert (await both.call("session", "train")).type == "batch"
    assert len((await both.call("tasks", "train", limit=1, offset=1)).tasks) == 1
    assert (await both.call("cancel_session", "train")).removed


async def test_dry_runs_submit_nothing(server: FakeServer, both: Both) -> None:
    assert (await both.call("dry_run", PROCESS)).name == "hello"
    assert server.workloads == {}
    server.add("web")
    assert (await both.call("explanation", "web")).status == "RUNNING"
    assert not (await both.call("compare", "web", PROCESS)).differences
    [difference] = (await both.call("compare", "web", PROCESS.model_copy(update={"replicas": 2}))).differences
    assert (difference.field, difference.present, difference.wanted) == ("replicas", "1", "2")


async def test_a_request_holds_only_what_was_set(server: FakeServer, both: Both) -> None:
    await both.call("submit", PROCESS)
    assert server.last("POST", "/api/workloads").body == {
        "name": "hello",
        "containers": [{"command": ["echo", "hello"]}],
    }
    await both.call("change_user", "admin", UserChange(os_user=""))
    assert server.last("PATCH", "/api/users/admin").body == {"os_user": ""}


async def test_filters_are_sent_only_when_given(server: FakeServer, both: Both) -> None:
    server.add("one")
    found = await both.call("workloads", status="RUNNING", all=True, limit=5)
    assert [workload.name for workload in found.workloads] == ["one"]
    assert server.last("GET", "/api/workloads").query == {"status": "RUNNING", "all": "true", "limit": "5"}
    await both.call("workloads")
    assert server.last("GET", "/api/workloads").query == {}


async def test_nodes_users_pools_and_tokens_are_reached(server: FakeServer, both: Both) -> None:
    node = NodeRequest(name="toy-1", simulated=True, resources={"cpu": "4"})
    assert (await both.call("add_node", node)).simulated
    assert (await both.call("drain_node", "toy-1")).status == "DRAINING"
    assert (await both.call("resume_node", "toy-1")).schedulable
    tainted = TaintsChange.model_validate({"add": [{"key": "spot", "effect": "NoExecute"}]})
    assert [taint.key for taint in (await both.call("change_taints", "toy-1", tainted)).taints] == ["spot"]
    assert (await both.call("node", "toy-1")).name == "toy-1"
    assert await both.call("remove_node", "toy-1", force=True) is None
    assert [found.name for found in (await both.call("nodes")).nodes] == ["node-1"]
    assert [pool.name for pool in (await both.call("pools")).pools] == ["default", "toy"]
    await both.call("pause_pool", "toy", reason="repairs")
    assert (await both.call("pool", "toy")).paused
    await both.call("resume_pool", "toy")
    assert not (await both.call("pool", "toy")).paused
    token = await both.call("create_join_token", JoinTokenRequest(name="edge"))
    assert (token.name, token.pool) == ("edge", "default")
    created = await both.call("create_user", UserRequest(username="ann"))
    assert created.password == "made-up-password"
    assert [user.username for user in await both.call("users")] == ["admin", "ann"]
    assert (await both.call("me")).role == "admin"


async def test_the_server_itself_answers_without_a_login(server: FakeServer, kind: str) -> None:
    anonymous = Both(kind, server.url)
    assert (await anonymous.call("health")).version == "9.9"
    server.ready = False
    ready = await anonymous.call("ready")
    assert not ready.ready
    assert ready.checks == {"database": "does not answer"}


async def test_every_request_says_which_version_asks(server: FakeServer, both: Both) -> None:
    server.add("one").log = b""
    await both.call("nodes")
    await both.logs("one")
    said = {versions.read(seen.client) for seen in server.seen}
    assert said == {versions.ClientVersion("mooring-python", __version__, versions.PROTOCOL)}


async def test_metrics_come_as_text(both: Both) -> None:
    assert await both.call("metrics") == "mooring_passes_total 3\n"


async def test_logs_come_as_the_bytes_that_were_written(server: FakeServer, both: Both) -> None:
    server.add("one").log = b"first\nsec\xffond\n"
    assert await both.logs("one") == b"first\nsec\xffond\n"
    assert await both.logs("one", tail=1, task=0) == b"sec\xffond\n"
    with pytest.raises(NotFound):
        await both.logs("another")


async def test_following_a_log_ends_with_the_task(server: FakeServer, both: Both) -> None:
    workload = server.add("one")
    workload.log = b"x"
    succeeded(workload)
    assert await both.logs("one", follow=True) == b"x"
    assert server.last("GET", "/api/workloads/one/logs").query == {"follow": "true"}


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (422, "invalid-quantity", InvalidInput),
        (401, "not-authenticated", NotAuthenticated),
        (403, "not-allowed", NotAllowed),
        (404, "not-found", NotFound),
        (409, "name-taken", Conflict),
        (429, "too-many-attempts", TooManyAttempts),
        (503, "unavailable", Unavailable),
        (500, "internal", MooringError),
    ],
)
async def test_an_error_keeps_its_code_message_and_details(
    server: FakeServer, both: Both, status: int, code: str, error: type[MooringError]
) -> None:
    server.refuse["GET", "/api/nodes"] = Refusal(status, code, "no", {"amount": 3})
    with pytest.raises(MooringError) as raised:
        await both.call("nodes")
    assert type(raised.value) is error
    assert (raised.value.code, raised.value.message, raised.value.details) == (code, "no", {"amount": 3})


async def test_a_client_honours_retry_after(server: FakeServer, both: Both) -> None:
    server.add("one").log = b"x"
    for path in ("/api/nodes", "/api/workloads/one/logs"):
        server.refuse_next["GET", path] = [Refusal(429, "overloaded", "later", {"retry_after_seconds": 0})] * 2
    assert (await both.call("nodes")).nodes
    assert await both.logs("one") == b"x"
    assert not any(server.refuse_next.values())


@pytest.mark.parametrize(
    ("code", "seconds"), [("overloaded", 3600), ("too-many-attempts", 0), ("too-many-streams", 0), ("overloaded", None)]
)
def test_errors_that_waiting_does_not_cure_are_raised_at_once(code: str, seconds: int | None) -> None:
    refused = TooManyAttempts("later", code=code, details={} if seconds is None else {"retry_after_seconds": seconds})
    with pytest.raises(TooManyAttempts):
        RetryBudget(30.0).pause_seconds(refused)


def test_a_client_loses_its_budget_when_it_is_put_off_again_and_again() -> None:
    budget, refused = RetryBudget(5.0), TooManyAttempts("later", code="overloaded", details={"retry_after_seconds": 2})
    assert [2 <= budget.pause_seconds(refused) <= 2.5 for _ in range(2)] == [True, True]
    with pytest.raises(TooManyAttempts):
        budget.pause_seconds(refused)


async def test_a_name_cannot_lead_to_another_path(server: FakeServer, both: Both) -> None:
    with pytest.raises(NotFound, match=r"a/\.\./b"):
        await both.call("workload", "a/../b")
    for name in ("", ".", ".."):
        with pytest.raises(InvalidInput):
            await both.call("workload", name)


def test_an_answer_of_another_version_says_so() -> None:
    with pytest.raises(MooringError, match="are the server's and the client's versions the same") as raised:
        read_answer(ops.health(), 200, b'{"status": "fine"}', "http://there")
    assert raised.value.code == "unexpected-answer"
    assert "final address" in read_error(302, b"", "http://there").message


async def test_an_answer_from_something_else_is_quoted(server: FakeServer, kind: str) -> None:
    wrong_place = Both(kind, f"{server.url}/elsewhere", token=server.token())
    with pytest.raises(NotFound, match="answered 404"):
        await wrong_place.call("nodes")


async def test_a_refused_connection_names_the_address_and_the_remedy(kind: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Unavailable) as raised:
            await Both(kind, address).call("health")
    assert raised.value.code == "unreachable"
    assert address in raised.value.message
    assert "mooring up" in raised.value.message


async def test_a_server_that_does_not_answer_is_given_up(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"did not answer within 0\.2 seconds"):
            await Both(kind, address, timeout_seconds=0.2).call("health")


async def test_a_proxy_for_others_is_not_asked_for_this_machine(
    server: FakeServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert (await Both(kind, server.url).call("health")).status == "ok"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself; its key lies beside it."""
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-days", "1",
         "-out", folder / "cert.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("certificates are not tested: openssl cannot make one; install openssl 1.1.1 or newer")
    return folder / "cert.pem"


async def test_a_certificate_of_an_unknown_authority_is_refused_with_advice(kind: str, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with FakeServer(tls=context) as secure:
        address = secure.url.replace("127.0.0.1", "localhost")
        assert (await Both(kind, address, ca_file=certificate).call("health")).status == "ok"
        with pytest.raises(Unavailable, match="--ca-file") as raised:
            await Both(kind, address).call("health")
    assert raised.value.code == "certificate-not-trusted"
    with pytest.raises(InvalidInput, match="cannot be used"):
        Client("https://localhost", ca_file=certificate.with_name("missing.pem"))


def test_threads_share_a_client(client: Client) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        assert {user.username for user in pool.map(lambda _: client.me(), range(32))} == {"admin"}


def test_the_synchronous_client_does_not_load_the_asynchronous_one() -> None:
    program = "import sys; from mooring.client import Client; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
