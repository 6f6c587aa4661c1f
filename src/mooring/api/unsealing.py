"""What is secret about the start of tasks: read sealed, opened at the moment an order is sent, never kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection

from mooring.model.errors import InvalidInput, MooringError
from mooring.model.images import parse_image
from mooring.model.reasons import Reason
from mooring.sealing import Sealing
from mooring.store import registry_logins, secrets
from mooring.store.engine import Connection
from mooring.store.sealed import Kept
from mooring.wire.agent import SECRETS_SINCE, DesiredTask, RegistryLogin, Secret

if TYPE_CHECKING:
    from mooring.api.agent_session import AgentSession


@dataclass(frozen=True, slots=True)
class Confidence:
    """What one task is to be told, still sealed; nothing, if its project has no login for its images."""

    project_id: UUID
    secrets: Mapping[str, Kept | None]
    """None: there is no such secret."""
    logins: Sequence[Kept]


Confidences = Mapping[UUID, Confidence]
"""By task; those that could need nothing secret are not among them."""


async def read(connection: Connection, tasks: Iterable[DesiredTask]) -> Confidences:
    """What those of the tasks need that have not started."""
    unstarted = [task for task in tasks if task.action != "stop" and not task.started]
    named: dict[UUID, set[str]] = {}
    registries: dict[UUID, set[str]] = {}
    for task in unstarted:
        named.setdefault(task.owner.project_id, set()).update(_secrets(task))
        registries.setdefault(task.owner.project_id, set()).update(_registries(task))
    known = await secrets.named(connection, named)
    logins = await registry_logins.named(connection, registries)
    found: dict[UUID, Confidence] = {}
    for task in unstarted:
        project, own, places = task.owner.project_id, sorted(_secrets(task)), sorted(_registries(task))
        if own or places:
            found[task.task_id] = Confidence(
                project,
                {name: known.get((project, name)) for name in own},
                [logins[project, place] for place in places if (project, place) in logins],
            )
    return found


class Unsealing:
    """Opens what is secret for agents that may hear it."""

    def __init__(self, sealing: Sealing, *, in_plain_text: bool = False) -> None:
        """`in_plain_text`: also for agents on other machines whose connection anybody on the way can read."""
        self._sealing = sealing
        self._in_plain_text = in_plain_text

    def whole(
        self, session: AgentSession, tasks: Sequence[DesiredTask], confidences: Confidences
    ) -> tuple[list[DesiredTask], dict[UUID, Reason]]:
        """The tasks with what is secret; and why some cannot be told it, which are not to be started."""
        told: list[DesiredTask] = []
        refused: dict[UUID, Reason] = {}
        for task in tasks:
            confidence = confidences.get(task.task_id)
            if confidence is None or not (confidence.secrets or confidence.logins):
                told.append(task)
                continue
            try:
                self._check(session)
                told.append(
                    msgspec.structs.replace(task, secrets=self._secrets(confidence), logins=self._logins(confidence))
                )
            except MooringError as problem:
                refused[task.task_id] = Reason(problem.code, problem.message, "secrets", "change")
                told.append(msgspec.structs.replace(task, action="stop"))
        return told, refused

    def _check(self, session: AgentSession) -> None:
        if session.protocol < SECRETS_SINCE:
            raise InvalidInput(
                f"the agent of node {session.node_name!r} is of a version that knows no secrets", code="agent-too-old"
            )
        if not session.confidential and not self._in_plain_text:
            raise InvalidInput(
                f"it needs a secret or a registry login, and node {session.node_name!r} is connected in plain text from"
                " another machine: an operator lets the server speak TLS, or sets MOORING_SECRETS_IN_PLAIN_TEXT",
                code="plain-text",
            )

    def _secrets(self, confidence: Confidence) -> list[Secret]:
        opened: list[Secret] = []
        for name, kept in confidence.secrets.items():
            if kept is None:
                raise InvalidInput(
                    f"its project has no secret {name!r} any more; set it with `mooring secret set {name}`",
                    code="no-such-secret",
                )
            opened.append(Secret(name=name, value=self._open(kept, f"secret {name!r}")))
        return opened

    def _logins(self, confidence: Confidence) -> list[RegistryLogin]:
        return [
            RegistryLogin(
                registry=login.name,
                username=login.username or "",
                password=self._open(login, f"the login to {login.name}").decode(),
            )
            for login in confidence.logins
        ]

    def _open(self, kept: Kept, what: str) -> bytes:
        try:
            return kept.open(self._sealing)
        except MooringError as problem:
            raise InvalidInput(f"{what} cannot be opened: {problem.message}", code=problem.code) from None


def is_confidential(connection: HTTPConnection) -> bool:
    """Whether nobody on the way can read: what a proxy on this machine says of its own client is believed."""
    if connection.url.scheme in ("wss", "https"):
        return True
    try:
        return connection.client is not None and ip_address(connection.client.host).is_loopback
    except ValueError:
        return False


def _secrets(task: DesiredTask) -> set[str]:
    return {name for container in (*task.init_containers, *task.containers) for name in container.secrets.values()}


def _registries(task: DesiredTask) -> set[str]:
    found: set[str] = set()
    for container in (*task.init_containers, *task.containers):
        if container.image is not None:
            # One that was handed in before names were checked: its node says what is wrong with it.
            with suppress(InvalidInput):
                found.add(parse_image(container.image).registry)
    return found
