"""Images are fetched from a real registry into a real engine, and once only; errors tell what a person can do."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from aiodocker import Docker
from aiohttp import web
from msgspec.structs import replace

from mooring.agent.runtimes.container import pulls
from mooring.agent.runtimes.container.engine import EngineUnavailable
from mooring.agent.runtimes.container.private_images import PrivateImages
from mooring.agent.runtimes.container.pulls import Images, PulledImage, login_for
from mooring.model.errors import MooringError
from mooring.model.workloads.containers import Pull
from mooring.wire.agents.desired_tasks import RegistryLogin
from tests.agent.builders import DEADLINE_SECONDS, eventually
from tests.agent.runtimes.container.conftest import Node, container, order
from tests.engine import BUSYBOX, CHOSEN, Engine, running_engine
from tests.servers import RegistryServer, running_registry, stop

PROJECT, STRANGER = UUID(int=1), UUID(int=2)
NGINX = order(containers=[container(image="nginx:1.27")])


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with running_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def customer(registry: RegistryServer) -> Iterator[Engine]:
    """An engine that knows the registry, in which `team/tool:1` is."""
    with running_engine(registry.address) as engine:
        engine.push_busybox(f"{registry.address}/team/tool:1", registry.username, registry.password)
        yield engine


@asynccontextmanager
async def opened(
    socket: str, folder: Path, changed: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Docker, Images]]:
    async with Docker(url=socket) as docker:
        private = PrivateImages(folder / "private-images.json")
        images = Images(docker, private, changed, trusting=CHOSEN == "docker")
        yield docker, images
        await images.close()


async def refusal(asking: Awaitable[PulledImage]) -> MooringError:
    with pytest.raises(MooringError) as caught:
        await asking
    return caught.value


async def test_registry_errors_have_their_own_codes_and_pulled_images_their_digest(
    registry: RegistryServer, customer: Engine, tmp_path: Path
) -> None:
    tool = f"{registry.address}/team/tool:1"
    login = RegistryLogin(registry=registry.address, username=registry.username, password=registry.password)
    wrong = RegistryLogin(registry=registry.address, username="ada", password="a-wrong-password")
    async with opened(customer.socket, tmp_path) as (docker, images):
        never = await refusal(images.ensure(tool, Pull.NEVER, PROJECT, login))
        assert never.code == "image-not-present"
        nobody = await refusal(images.ensure(tool, Pull.IF_NOT_PRESENT, PROJECT))
        assert nobody.code == "image-denied"
        assert "store a login of the project" in nobody.message
        stranger = await refusal(images.ensure(tool, Pull.IF_NOT_PRESENT, PROJECT, wrong))
        assert stranger.code == "image-denied"
        assert "'ada'" in stranger.message
        assert wrong.password not in str(stranger)
        missing = await refusal(images.ensure(f"{registry.address}/team/tool:2", Pull.ALWAYS, PROJECT, login))
        assert missing.code == "image-not-found"
        assert missing.message == f"registry {registry.address} has no image {registry.address}/team/tool:2"

        pulled = await images.ensure(tool, Pull.IF_NOT_PRESENT, PROJECT, login)
        assert await images.ensure(tool, Pull.NEVER, PROJECT) == pulled
        assert await images.ensure(tool, Pull.ALWAYS, PROJECT, login) == pulled
        by_digest = (await docker.images.inspect(tool))["RepoDigests"][0]
        assert (await images.ensure(by_digest, Pull.NEVER, PROJECT)).id == pulled.id
        present = await images.present()
        assert present[tool] == present[BUSYBOX] > 1_000_000
        assert by_digest in present


async def test_an_image_behind_a_password_is_there_only_for_projects_that_fetched_it_themselves(
    registry: RegistryServer, customer: Engine, tmp_path: Path
) -> None:
    secret = f"{registry.address}/team/secret:1"
    customer.push_busybox(secret, registry.username, registry.password)
    login = RegistryLogin(registry=registry.address, username=registry.username, password=registry.password)
    async with opened(customer.socket, tmp_path) as (docker, images):
        pulled = await images.ensure(secret, Pull.IF_NOT_PRESENT, PROJECT, login)
        by_digest = next(each for each in (await docker.images.inspect(secret))["RepoDigests"] if "team/secret" in each)
    # Another agent on the node knows it, too.
    async with opened(customer.socket, tmp_path) as (_, images):
        assert await images.ensure(secret, Pull.NEVER, PROJECT) == pulled
        for name in (secret, by_digest):
            assert (await refusal(images.ensure(name, Pull.NEVER, STRANGER))).code == "image-not-present"
            assert (await refusal(images.ensure(name, Pull.IF_NOT_PRESENT, STRANGER))).code == "image-denied"
        # What it is does not say where it comes from: no other repository has it because this one does.
        elsewhere = f"{registry.address}/strangers/own@{by_digest.partition('@')[2]}"
        assert (await refusal(images.ensure(elsewhere, Pull.NEVER, STRANGER))).code == "image-not-present"
        # What is there under another name for everybody stays so.
        assert (await images.ensure(BUSYBOX, Pull.NEVER, STRANGER)).id == pulled.id
        assert await images.ensure(secret, Pull.IF_NOT_PRESENT, STRANGER, login) == pulled
        assert await images.ensure(secret, Pull.NEVER, STRANGER) == pulled
    assert registry.password.encode() not in written(tmp_path)


@pytest.mark.slow
async def test_a_registry_that_does_not_answer_is_no_fault_of_the_image(customer: Engine, tmp_path: Path) -> None:
    with running_registry() as registry:
        image = f"{registry.address}/team/tool:1"
        stop(registry.process, signal.SIGTERM)
        async with opened(customer.socket, tmp_path) as (_, images):
            failed = await refusal(images.ensure(image, Pull.IF_NOT_PRESENT, PROJECT))
    assert failed.code == "image-pull-failed"
    assert "connection refused" in failed.message


class SlowEngine:
    """An engine that fetches an image layer by layer, as the test says, and has it from then on."""

    def __init__(self) -> None:
        self.pulls: list[str] = []
        """User names of the logins, one per pull."""
        self.said: asyncio.Queue[dict[str, object] | None] = asyncio.Queue()
        self.given_up = asyncio.Event()
        self.goes_away = asyncio.Event()
        self.present = False

    def says(self, status: str, current: int = 0, total: int = 0, layer: str = "a1") -> None:
        self.said.put_nowait({"id": layer, "status": status, "progressDetail": {"current": current, "total": total}})

    async def pull(self, request: web.Request) -> web.StreamResponse:
        self.pulls.append(request.headers.get("X-Registry-Auth", ""))
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while (item := await self.said.get()) is not None:
                await answer.write(json.dumps(item).encode() + b"\n")
                if self.goes_away.is_set() and request.transport is not None:
                    request.transport.abort()
                    return answer
            self.present = True
        except (asyncio.CancelledError, ConnectionError):
            self.given_up.set()
            raise
        return answer

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41"})

    async def inspect(self, request: web.Request) -> web.Response:
        if not self.present:
            return web.json_response({"message": "No such image"}, status=404)
        return web.json_response({"Id": "sha256:1", "RepoDigests": ["nginx@sha256:" + "2" * 64]})


@asynccontextmanager
async def slow_engine(
    folder: Path, changed: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[SlowEngine, Images]]:
    engine, app = SlowEngine(), web.Application()
    app.router.add_get("/version", engine.version)
    app.router.add_post("/{version}/images/create", engine.pull)
    app.router.add_get("/{version}/images/{name:.*}/json", engine.inspect)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, str(folder / "engine")).start()
    try:
        async with opened(f"unix://{folder / 'engine'}", folder, changed) as (_, images):
            yield engine, images
    finally:
        await runner.cleanup()


async def test_many_tasks_share_one_pull_and_see_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls, "_REPORT_SECONDS", 3600)
    received: list[str | None] = []
    async with slow_engine(tmp_path, lambda: received.append(images.progress("nginx:1.27"))) as (engine, images):
        assert images.progress("nginx:1.27") is None
        waiting = [asyncio.create_task(images.ensure("nginx:1.27", Pull.IF_NOT_PRESENT, PROJECT)) for _ in range(20)]
        await eventually(lambda: bool(engine.pulls))
        assert images.progress("nginx:1.27") == "pulling nginx:1.27"
        engine.says("Downloading", 30_500_000, 60_000_000)
        engine.says("Downloading", 4_000_000, 19_999_999, layer="b2")
        await eventually(lambda: images.progress("docker.io/library/nginx:1.27") == "pulling nginx:1.27: 34 of 80 MB")
        assert received[0] == "pulling nginx:1.27: 30 of 60 MB"
        heard = images.message_count(NGINX)
        engine.says("Download complete")
        engine.says("Extracting", 1, 60_000_000)
        await eventually(lambda: images.progress("nginx:1.27") == "pulling nginx:1.27: 64 of 80 MB")
        assert heard < images.message_count(NGINX)
        engine.said.put_nowait(None)
        assert {await each for each in waiting} == {PulledImage("sha256:1", "sha256:" + "2" * 64)}
        assert len(engine.pulls) == 1
        assert len(received) == 1
        assert images.progress("nginx:1.27") is None
        assert images.message_count(NGINX) == 0


async def test_a_pull_continues_only_while_a_task_needs_it(tmp_path: Path) -> None:
    async with slow_engine(tmp_path) as (engine, images):
        first, second = (asyncio.create_task(images.ensure("nginx", Pull.ALWAYS, PROJECT)) for _ in range(2))
        await eventually(lambda: bool(engine.pulls))
        first.cancel()
        await asyncio.wait([first])
        assert images.progress("nginx") is not None
        second.cancel()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await engine.given_up.wait()
        assert images.progress("nginx") is None
        again = asyncio.create_task(images.ensure("nginx", Pull.ALWAYS, PROJECT))
        engine.said.put_nowait(None)
        assert (await again).id == "sha256:1"


async def test_a_pull_uses_the_login_of_its_own_project(tmp_path: Path) -> None:
    async with slow_engine(tmp_path) as (engine, images):
        login = RegistryLogin(registry="docker.io", username="ada", password="secret-of-ada")
        both = [asyncio.create_task(images.ensure("nginx", Pull.ALWAYS, PROJECT, each)) for each in (None, login)]
        await eventually(lambda: bool(engine.pulls))
        engine.said.put_nowait(None)
        await eventually(lambda: len(engine.pulls) == 2)
        engine.said.put_nowait(None)
        await asyncio.gather(*both)
        assert engine.pulls[0] == ""
        assert engine.pulls[1] != ""


async def test_an_error_of_the_engine_is_one_line_without_the_password(tmp_path: Path) -> None:
    async with slow_engine(tmp_path) as (engine, images):
        login = RegistryLogin(registry="docker.io", username="ada", password="secret-of-ada")
        engine.said.put_nowait({"error": "toomanyrequests:\n" + "ada:secret-of-ada " * 50})
        failed = await refusal(images.ensure("nginx", Pull.ALWAYS, PROJECT, login))
    assert failed.code == "image-pull-failed"
    assert "secret-of-ada" not in failed.message
    assert failed.message.startswith("cannot pull image nginx:latest from docker.io: toomanyrequests: ada:***")
    assert failed.message.isprintable()
    assert len(failed.message) < 400


async def test_an_engine_that_goes_away_while_it_fetches_has_not_fetched(tmp_path: Path) -> None:
    async with slow_engine(tmp_path) as (engine, images):
        waiting = asyncio.create_task(images.ensure("nginx", Pull.IF_NOT_PRESENT, PROJECT))
        await eventually(lambda: bool(engine.pulls))
        engine.goes_away.set()
        engine.says("Downloading", 1, 2)
        failed = await refusal(waiting)
    assert isinstance(failed, EngineUnavailable)


async def test_waiters_for_a_pull_learn_that_the_engine_was_closed(tmp_path: Path) -> None:
    async with slow_engine(tmp_path) as (engine, images):
        waiting = asyncio.create_task(images.ensure("nginx", Pull.IF_NOT_PRESENT, PROJECT))
        await eventually(lambda: bool(engine.pulls))
        await images.close()
        assert isinstance(await refusal(waiting), EngineUnavailable)


def test_a_login_is_for_the_registry_that_it_names() -> None:
    hub = RegistryLogin(registry="docker.io", username="a", password="x")
    own = RegistryLogin(registry="r.example:5000", username="b", password="y")
    assert login_for("nginx", [own, hub]) is hub
    assert login_for("r.example:5000/x:1", [hub, own]) is own
    assert login_for("r.example/x:1", [hub, own]) is None


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_task_runs_from_an_image_behind_a_password_and_fails_without_it(
    registry: RegistryServer, customer: Engine, tmp_path: Path
) -> None:
    tool = f"{registry.address}/team/tool:1"
    login = RegistryLogin(registry=registry.address, username=registry.username, password=registry.password)
    node = Node(tmp_path, customer)
    await node.runtime.open()
    try:
        allowed, stranger = (order(containers=[container("true", image=tool, pull="always")]) for _ in range(2))
        ran = await node.run(replace(allowed, logins=[login]))
        assert (ran.status, ran.exit_code) == ("SUCCEEDED", 0)
        assert ran.digests["main"].startswith("sha256:")
        refused = await node.run(stranger)
        assert (refused.status, refused.code, refused.ran) == ("FAILED", "image-denied", False)
        assert "store a login of the project" in refused.reason
        assert (await node.runtime.images())[tool] > 1_000_000
        assert registry.password.encode() not in written(tmp_path)
    finally:
        await node.close()
