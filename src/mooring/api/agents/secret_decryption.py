"""Decryption of the secrets of tasks, at the moment when their desired state is sent to an agent that may have them."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.task_secrets import SecretsByTask, TaskSecrets
from mooring.api.middleware.client_address import client_address, is_forwarded
from mooring.model.errors import InvalidInput, MooringError
from mooring.model.reasons import Reason
from mooring.security.encryption import SecretBox
from mooring.store.tenancy.sealed_rows import SealedRow
from mooring.wire.agents.agent_protocol import SECRETS_SINCE
from mooring.wire.agents.desired_tasks import DesiredTask, RegistryLogin, Secret


class SecretDecryption:
    """Decrypts the secrets of tasks for agents that may have them."""

    def __init__(self, secret_box: SecretBox, *, in_plain_text: bool = False) -> None:
        """`in_plain_text`: also for agents on other machines that are connected without TLS."""
        self._secret_box = secret_box
        self._in_plain_text = in_plain_text

    def decrypt(
        self, session: AgentSession, tasks: Sequence[DesiredTask], secrets_by_task: SecretsByTask
    ) -> tuple[list[DesiredTask], dict[UUID, Reason]]:
        """Return the tasks with their secrets, and the reasons for those that cannot have them and must not start."""
        decrypted: list[DesiredTask] = []
        refused: dict[UUID, Reason] = {}
        for task in tasks:
            secrets = secrets_by_task.get(task.task_id)
            if secrets is None or not (secrets.secrets or secrets.logins):
                decrypted.append(task)
                continue
            try:
                self._check(session)
                decrypted.append(
                    msgspec.structs.replace(task, secrets=self._secrets(secrets), logins=self._logins(secrets))
                )
            except MooringError as problem:
                refused[task.task_id] = Reason(problem.code, problem.message, "secrets", "change")
                decrypted.append(msgspec.structs.replace(task, action="stop"))
        return decrypted, refused

    def _check(self, session: AgentSession) -> None:
        if session.protocol < SECRETS_SINCE:
            raise InvalidInput(
                f"the agent of node {session.node_name!r} is too old for secrets; upgrade it", code="agent-too-old"
            )
        if not session.confidential and not self._in_plain_text:
            raise InvalidInput(
                f"it needs a secret or a registry login, and node {session.node_name!r} is connected in plain text from"
                " another machine: an operator lets the server speak TLS, names the proxy that does in"
                " MOORING_TRUSTED_PROXIES, or sets MOORING_SECRETS_IN_PLAIN_TEXT",
                code="plain-text",
            )

    def _secrets(self, secrets: TaskSecrets) -> list[Secret]:
        opened: list[Secret] = []
        for name, sealed in secrets.secrets.items():
            if sealed is None:
                raise InvalidInput(
                    f"its project has no secret {name!r} any more; set it with `mooring secret set {name}`",
                    code="no-such-secret",
                )
            opened.append(Secret(name=name, value=self._open(sealed, f"secret {name!r}")))
        return opened

    def _logins(self, secrets: TaskSecrets) -> list[RegistryLogin]:
        return [
            RegistryLogin(
                registry=login.name,
                username=login.username or "",
                password=self._open(login, f"the login to {login.name}").decode(),
            )
            for login in secrets.logins
        ]

    def _open(self, sealed: SealedRow, what: str) -> bytes:
        try:
            return sealed.open(self._secret_box)
        except MooringError as problem:
            raise InvalidInput(f"{what} cannot be decrypted: {problem.message}", code=problem.code) from None


def is_confidential(connection: HTTPConnection) -> bool:
    """Return whether the connection is confidential: TLS, also at a trusted proxy, or a client on this machine.

    A request from an unknown proxy on this machine may come from anywhere, so it does not count.
    """
    if connection.url.scheme in ("wss", "https"):
        return True
    address = client_address(connection.scope)
    return address is not None and ip_address(address).is_loopback and not is_forwarded(connection.scope)
