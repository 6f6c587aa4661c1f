"""Images on the node: fetched once however many tasks want them, with progress, and errors that a person can read."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import aiohttp
from aiodocker import Docker
from aiodocker.utils import compose_auth_header

from mooring.agent.containers.engine import EngineGone, EngineRefused, lines, translated
from mooring.agent.containers.private_images import PrivateImages
from mooring.model.containers import Pull
from mooring.model.errors import MooringError
from mooring.model.images import ImageName, parse_image
from mooring.wire.agent import DesiredTask, RegistryLogin

_SILENT_SECONDS = 600.0
"""An engine that says nothing for so long is not fetching any more; taking a large layer apart is silent, too."""
_TELL_SECONDS = 2.0
"""Progress is told at most this often."""
_ENDLESS = aiohttp.ClientTimeout(sock_connect=5.0)
_LONGEST_ERROR = 300
_MEGABYTE = 1_000_000

_DENIED = re.compile(
    r"unauthorized|authentication required|no basic auth|\bforbidden\b|access denied|access to the resource is denied"
    r"|incorrect username or password",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"(manifest|name)[ _]unknown|manifest for .* not found|repository .* not found", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pulled:
    """An image that is on the node."""

    id: str
    """The engine's own name for it, which cannot come to mean another image."""
    digest: str
    """What registries know it by; its id where it came from none."""


@dataclass(slots=True)
class _Fetching:
    """A pull that is under way."""

    login: RegistryLogin | None
    wanted: int = 0
    """How many wait for it."""
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By id: the bytes that have come, and all."""
    heard: int = 0
    """So often the engine has said something."""
    task: asyncio.Task[None] = field(init=False)

    def take(self, item: Mapping[str, Any]) -> None:
        """What the engine says of one layer."""
        self.heard += 1
        layer, status, detail = item.get("id"), item.get("status"), item.get("progressDetail") or {}
        if not layer:
            return
        if status == "Downloading" and detail.get("total"):
            self.layers[layer] = int(detail.get("current") or 0), int(detail["total"])
        elif status in ("Download complete", "Pull complete") and layer in self.layers:
            total = self.layers[layer][1]
            self.layers[layer] = total, total


class Images:
    """The images of one engine. `changed` is called, now and then, while `progress` answers differently.

    `trusting`: it fetches by digest what it has already without asking the registry, as Docker does.
    """

    def __init__(
        self,
        docker: Docker,
        private: PrivateImages,
        changed: Callable[[], None] = lambda: None,
        *,
        trusting: bool = False,
    ) -> None:
        self._docker = docker
        self._private = private
        self._trusting = trusting
        self._changed = changed
        self._fetching: dict[str, _Fetching] = {}
        self._told_at = -math.inf

    async def ensure(self, image: str, pull: Pull, project: UUID, login: RegistryLogin | None = None) -> Pulled:
        """Have the image on the node; MooringError with a code and a sentence where that cannot be."""
        name = parse_image(image)
        before = await self._find(name)
        hidden = before is not None and self._private.hides(name, before.id, project)
        if pull is not Pull.ALWAYS and before is not None and not hidden:
            return before
        if pull is Pull.NEVER:
            message = f"image {name.short} is not on this node, and is never to be fetched"
            raise MooringError(message, code="image-not-present")
        if hidden and self._trusting:
            await self._ask_registry(name, login)
        await self._fetch(name, login)
        found = await self._find(name)
        if found is None:
            raise _pull_failed(name, "the engine ended before it was there")
        if found != before or self._private.knows(name, found.id):
            self._private.fetched(name, found.id, project, with_login=login is not None)
        return found

    async def of_task(self, task: DesiredTask) -> dict[str, Pulled]:
        """Have all images of a task, by container."""
        found: dict[str, Pulled] = {}
        for container in (*task.init_containers, *task.containers):
            if container.image is not None:
                login = login_for(container.image, task.logins)
                project = task.owner.project_id
                found[container.name] = await self.ensure(container.image, Pull(container.pull), project, login)
        return found

    def progress_of(self, task: DesiredTask) -> str:
        """Of the first image that is still being fetched."""
        images = (container.image for container in (*task.init_containers, *task.containers))
        return next((told for image in images if image is not None and (told := self.progress(image))), "")

    def heard_of(self, task: DesiredTask) -> int:
        """How much the engine has said of the images that are being fetched for it."""
        images = {str(parse_image(each.image)) for each in (*task.init_containers, *task.containers) if each.image}
        return sum(self._fetching[name].heard for name in images if name in self._fetching)

    def progress(self, image: str) -> str | None:
        """`pulling nginx:1.27: 34 of 80 MB`; None while nobody fetches it."""
        name = parse_image(image)
        fetching = self._fetching.get(str(name))
        if fetching is None:
            return None
        come = sum(current for current, _ in fetching.layers.values())
        total = sum(total for _, total in fetching.layers.values())
        amounts = f": {come // _MEGABYTE} of {-(-total // _MEGABYTE)} MB" if total else ""
        return f"pulling {name.short}{amounts}"

    async def present(self) -> dict[str, int]:
        """Those on the node, by each of their names, with their bytes."""
        with translated():
            listed = await self._docker.images.list()
        self._private.forget_all_but({str(image["Id"]) for image in listed})
        found: dict[str, int] = {}
        for image in listed:
            for name in _names(image):
                found[name] = int(image.get("Size") or 0)
        return found

    async def close(self) -> None:
        fetching = [each.task for each in self._fetching.values()]
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    async def _find(self, name: ImageName) -> Pulled | None:
        try:
            with translated():
                found = await self._docker.images.inspect(str(name))
        except EngineRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        # Engines find what has a digest under the name of any repository, whichever it came from.
        if name.digest is not None and not _is_of_repository(name, found):
            return None
        return Pulled(found["Id"], _digest(name, found))

    async def _ask_registry(self, name: ImageName, login: RegistryLogin | None) -> None:
        try:
            with translated():
                async with self._docker._query(f"distribution/{name}/json", headers=_headers(name, login)):
                    return
        except EngineRefused as refusal:
            raise _refusal(name, login, refusal) from None

    async def _fetch(self, name: ImageName, login: RegistryLogin | None) -> None:
        """Wait for the one pull of it; whoever has another login asks the registry anew after that."""
        key = str(name)
        while (fetching := self._fetching.get(key)) is not None and fetching.login != login:
            await asyncio.wait([fetching.task])
        if fetching is None:
            fetching = self._fetching[key] = _Fetching(login)
            fetching.task = asyncio.create_task(self._pull(name, fetching))
            fetching.task.add_done_callback(lambda _: self._forget(key, fetching))
        fetching.wanted += 1
        try:
            await asyncio.wait([fetching.task])
            if fetching.task.cancelled():
                raise EngineGone(f"the engine went away while it fetched image {name.short}")
            fetching.task.result()
        finally:
            fetching.wanted -= 1
            if not fetching.wanted:
                self._forget(key, fetching)
                fetching.task.cancel()

    def _forget(self, key: str, fetching: _Fetching) -> None:
        if self._fetching.get(key) is fetching:
            del self._fetching[key]

    async def _pull(self, name: ImageName, fetching: _Fetching) -> None:
        login, loop = fetching.login, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_SILENT_SECONDS) as limit:
                async with aclosing(self._told_by_engine(name, login)) as told:
                    async for item in told:
                        limit.reschedule(loop.time() + _SILENT_SECONDS)
                        fetching.take(item)
                        self._tell(loop.time())
        except TimeoutError:
            raise _pull_failed(name, f"nothing came for {_SILENT_SECONDS:.0f} s") from None
        except EngineRefused as refusal:
            raise _refusal(name, login, refusal) from None

    def _tell(self, now: float) -> None:
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            self._changed()

    async def _told_by_engine(
        self, name: ImageName, login: RegistryLogin | None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """What the engine says while it fetches. It goes on with that until its connection ends, which
        `Docker.images.pull` leaves open when it is abandoned.
        """
        asked = self._docker._query(
            "images/create", "POST", params={"fromImage": str(name)}, headers=_headers(name, login), timeout=_ENDLESS
        )
        with translated():
            async with asked as response:
                try:
                    async for line in lines(response):
                        item = json.loads(line)
                        if problem := item.get("error"):
                            raise EngineRefused(str(problem), response.status)
                        yield item
                finally:
                    response.close()


def login_for(image: str, logins: Iterable[RegistryLogin]) -> RegistryLogin | None:
    """The one for the image's registry."""
    registry = parse_image(image).registry
    return next((login for login in logins if login.registry == registry), None)


def _headers(name: ImageName, login: RegistryLogin | None) -> dict[str, str]:
    if login is None:
        return {}
    auth = {"username": login.username, "password": login.password}
    return {"X-Registry-Auth": compose_auth_header(auth, name.registry)}


def _digest(name: ImageName, found: Mapping[str, Any]) -> str:
    """The manifest's, where the engine knows one only for the image's repository."""
    if name.digest is not None:
        return name.digest
    start = f"{name.registry}/{name.repository}@"
    whole = (str(parse_image(each)) for each in found.get("RepoDigests") or ())
    digests = {each.removeprefix(start) for each in whole if each.startswith(start)}
    return digests.pop() if len(digests) == 1 else str(found["Id"])


def _is_of_repository(name: ImageName, found: Mapping[str, Any]) -> bool:
    known = (parse_image(each) for each in _names(found))
    return any((each.registry, each.repository) == (name.registry, name.repository) for each in known)


def _names(image: Mapping[str, Any]) -> list[str]:
    every = (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ()))
    return [name for name in every if "<none>" not in name]


def _refusal(name: ImageName, login: RegistryLogin | None, refusal: EngineRefused) -> MooringError:
    if _DENIED.search(refusal.message):
        who = f"user {login.username!r}" if login is not None else "those without a login"
        give = f"give the project a login with `mooring registry login {name.registry}`"
        hint = "check the login" if login is not None else give
        return MooringError(
            f"registry {name.registry} does not give image {name.short} to {who}: {hint}, and the name of the image",
            code="image-denied",
        )
    if refusal.status == 404 or _UNKNOWN.search(refusal.message):
        return MooringError(f"registry {name.registry} has no image {name.short}", code="image-not-found")
    return _pull_failed(name, _without_password(refusal.message, login))


def _pull_failed(name: ImageName, why: str) -> MooringError:
    return MooringError(f"cannot fetch image {name.short} from {name.registry}: {why}", code="image-pull-failed")


def _without_password(words: str, login: RegistryLogin | None) -> str:
    """What an engine says, in one line."""
    if login is not None and login.password:
        words = words.replace(login.password, "***")
    line = "".join(sign if sign.isprintable() else " " for sign in words)
    return line if len(line) <= _LONGEST_ERROR else line[: _LONGEST_ERROR - 3] + "..."
