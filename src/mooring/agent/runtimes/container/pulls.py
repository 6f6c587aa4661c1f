"""Image pulls: each image is pulled once for all tasks that need it, with progress and readable errors."""

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

from mooring.agent.runtimes.container.engine import (
    EngineRefused,
    EngineTransient,
    EngineUnavailable,
    lines,
    translated,
)
from mooring.agent.runtimes.container.private_images import PrivateImages
from mooring.model.errors import MooringError
from mooring.model.workloads.containers import Pull
from mooring.model.workloads.images import ImageName, parse_image
from mooring.wire.agents.desired_tasks import DesiredTask, RegistryLogin

_SILENT_SECONDS = 600.0
"""Silence after which a pull has failed; unpacking a large layer is silent, too."""
_REPORT_SECONDS = 2.0
"""Minimum interval of progress reports."""
_ENDLESS = aiohttp.ClientTimeout(sock_connect=5.0)
_MAX_ERROR_LENGTH = 300
_MEGABYTE = 1_000_000

_DENIED = re.compile(
    r"unauthorized|authentication required|no basic auth|\bforbidden\b|access denied|access to the resource is denied"
    r"|incorrect username or password",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"(manifest|name)[ _]unknown|manifest for .* not found|repository .* not found", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PulledImage:
    """An image on the node."""

    id: str
    """The engine's id of the image, which never refers to another one."""
    digest: str
    """The digest at the registry, or the id of a local image."""


@dataclass(slots=True)
class _Fetching:
    """A running pull."""

    login: RegistryLogin | None
    wanted: int = 0
    """Number of waiting tasks."""
    layers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By layer: received and total bytes."""
    heard: int = 0
    """Number of messages from the engine."""
    task: asyncio.Task[None] = field(init=False)

    def take(self, item: Mapping[str, Any]) -> None:
        """The engine's status message about a layer."""
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
    """The images of an engine. `changed` is called at intervals while `progress` changes.

    `trusting`: the engine does not ask the registry for a digest that it already has, as Docker does.
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
        self._reported_at = -math.inf

    async def ensure(self, image: str, pull: Pull, project: UUID, login: RegistryLogin | None = None) -> PulledImage:
        """Make the image available on the node; MooringError with a code and a message if that fails."""
        name = parse_image(image)
        before = await self._find(name)
        hidden = before is not None and self._private.hides(name, before.id, project)
        if pull is not Pull.ALWAYS and before is not None and not hidden:
            return before
        if pull is Pull.NEVER:
            message = f"image {name.short} is not on this node, and its pull policy is never"
            raise MooringError(message, code="image-not-present")
        if hidden and self._trusting:
            await self._ask_registry(name, login)
        await self._fetch(name, login)
        found = await self._find(name)
        if found is None:
            raise _pull_failed(name, "the engine ended the pull early")
        if found != before or self._private.knows(name, found.id):
            self._private.fetched(name, found.id, project, with_login=login is not None)
        return found

    async def of_task(self, task: DesiredTask) -> dict[str, PulledImage]:
        """Return all images of a task by container, pulled if necessary."""
        found: dict[str, PulledImage] = {}
        for container in (*task.init_containers, *task.containers):
            if container.image is not None:
                login = login_for(container.image, task.logins)
                project = task.owner.project_id
                found[container.name] = await self.ensure(container.image, Pull(container.pull), project, login)
        return found

    def progress_of(self, task: DesiredTask) -> str:
        """Return the progress of the first image that is still being pulled."""
        images = (container.image for container in (*task.init_containers, *task.containers))
        return next((progress for image in images if image is not None and (progress := self.progress(image))), "")

    def message_count(self, task: DesiredTask) -> int:
        """Return the number of the engine's messages about the images being pulled for the task."""
        images = {str(parse_image(each.image)) for each in (*task.init_containers, *task.containers) if each.image}
        return sum(self._fetching[name].heard for name in images if name in self._fetching)

    def progress(self, image: str) -> str | None:
        """Return `pulling nginx:1.27: 34 of 80 MB`; None if it is not being pulled."""
        name = parse_image(image)
        fetching = self._fetching.get(str(name))
        if fetching is None:
            return None
        come = sum(current for current, _ in fetching.layers.values())
        total = sum(total for _, total in fetching.layers.values())
        amounts = f": {come // _MEGABYTE} of {-(-total // _MEGABYTE)} MB" if total else ""
        return f"pulling {name.short}{amounts}"

    async def present(self) -> dict[str, int]:
        """Return the images on the node by each of their names, with their size in bytes."""
        with translated():
            listed = await self._docker.images.list()
        self._private.retain_only({str(image["Id"]) for image in listed})
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

    async def _find(self, name: ImageName) -> PulledImage | None:
        try:
            with translated():
                found = await self._docker.images.inspect(str(name))
        except EngineRefused as refusal:
            if refusal.status == 404:
                return None
            raise
        # Engines find an image by digest under the name of any repository, not only its own.
        if name.digest is not None and not _is_of_repository(name, found):
            return None
        return PulledImage(found["Id"], _digest(name, found))

    async def _ask_registry(self, name: ImageName, login: RegistryLogin | None) -> None:
        try:
            with translated():
                async with self._docker._query(f"distribution/{name}/json", headers=_headers(name, login)):
                    return
        except EngineTransient:
            raise
        except EngineRefused as refusal:
            raise _refusal(name, login, refusal) from None

    async def _fetch(self, name: ImageName, login: RegistryLogin | None) -> None:
        """Wait for the shared pull. A task with another login then asks the registry again."""
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
                raise EngineUnavailable(f"the engine stopped while it pulled image {name.short}")
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
                async with aclosing(self._engine_progress(name, login)) as messages:
                    async for item in messages:
                        limit.reschedule(loop.time() + _SILENT_SECONDS)
                        fetching.take(item)
                        self._report(loop.time())
        except TimeoutError:
            raise _pull_failed(name, f"no progress for {_SILENT_SECONDS:.0f} s") from None
        except EngineTransient:
            raise
        except EngineRefused as refusal:
            raise _refusal(name, login, refusal) from None

    def _report(self, now: float) -> None:
        if now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            self._changed()

    async def _engine_progress(
        self, name: ImageName, login: RegistryLogin | None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the engine's messages during a pull.

        The engine pulls until its connection ends, which `Docker.images.pull` leaves open when it is abandoned.
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
    """Return the login for the image's registry."""
    registry = parse_image(image).registry
    return next((login for login in logins if login.registry == registry), None)


def _headers(name: ImageName, login: RegistryLogin | None) -> dict[str, str]:
    if login is None:
        return {}
    auth = {"username": login.username, "password": login.password}
    return {"X-Registry-Auth": compose_auth_header(auth, name.registry)}


def _digest(name: ImageName, found: Mapping[str, Any]) -> str:
    """Return the manifest digest that the engine knows for the image's repository."""
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
        who = f"user {login.username!r}" if login is not None else "anonymous users"
        give = f"store a login of the project with `mooring registry login {name.registry}`"
        hint = "check the login" if login is not None else give
        return MooringError(
            f"registry {name.registry} denies image {name.short} to {who}: {hint}, and check the name of the image",
            code="image-denied",
        )
    if refusal.status == 404 or _UNKNOWN.search(refusal.message):
        return MooringError(f"registry {name.registry} has no image {name.short}", code="image-not-found")
    return _pull_failed(name, _without_password(refusal.message, login))


def _pull_failed(name: ImageName, why: str) -> MooringError:
    return MooringError(f"cannot pull image {name.short} from {name.registry}: {why}", code="image-pull-failed")


def _without_password(words: str, login: RegistryLogin | None) -> str:
    """Return an engine's message as one line."""
    if login is not None and login.password:
        words = words.replace(login.password, "***")
    line = "".join(sign if sign.isprintable() else " " for sign in words)
    return line if len(line) <= _MAX_ERROR_LENGTH else line[: _MAX_ERROR_LENGTH - 3] + "..."
