"""What is secret about the start of tasks, opened at the moment an order is sent to an agent that may hear it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection

from mooring.api.agent_session import AgentSession
from mooring.api.confidences import Confidence, Confidences
from mooring.model.errors import InvalidInput, MooringError
from mooring.model.reasons import Reason
from mooring.sealing import Sealing
from mooring.store.sealed import Kept
from mooring.wire.agent import SECRETS_SINCE, DesiredTask, RegistryLogin, Secret


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
