"""Authentication of a client: the token to send, its renewal, and a new login. Performs no I/O."""

from __future__ import annotations

import base64
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.client.credentials import CredentialStore, Login
from mooring.client.local import ADMIN, admin_password

if TYPE_CHECKING:
    from mooring.wire.tenancy.users import LoginRequest, Token


class Authentication:
    """The login state that both clients share. Without a store, a login lasts as long as the client."""

    def __init__(
        self,
        server: str,
        *,
        token: str | None = None,
        keypair: tuple[str, str] | None = None,
        store: CredentialStore | None = None,
    ) -> None:
        self._server = server
        self._token = token
        self._keypair = keypair
        self._store = store if token is None and keypair is None else None
        self._login = self._store.get(server) if self._store else None

    @property
    def username(self) -> str | None:
        return self._login.username if self._login else None

    @property
    def headers(self) -> dict[str, str]:
        if self._login and self._login.keypair:
            return _basic(self._login.username, self._login.token)
        if self._keypair:
            return _basic(*self._keypair)
        token = self._login.token if self._login else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def renewal_due(self) -> bool:
        return self._login is not None and not self._login.keypair and self._login.renewal_due(time.time())

    def logged_in(
        self,
        username: str,
        token: Token,
        *,
        remember: bool = False,
        data_folder: Path | None = None,
        ca_file: str | None = None,
    ) -> None:
        """A login by password. Remembered logins are stored and make this server the default."""
        folder = str(data_folder) if data_folder else None
        self._login = _fresh(Login(username, "", 0.0, 0.0, folder, ca_file), token)
        if not remember:
            self._store = None
        elif self._store:
            self._store.save(self._server, self._login, make_last=True)

    def renewed(self, token: Token) -> None:
        if self._login:
            self._login = _fresh(self._login, token)
            if self._store:
                self._store.save(self._server, self._login)

    def password_changed(self, token: Token) -> None:
        """As `renewed`; and the password of a data folder is the right one no more."""
        if self._login:
            self._login = replace(self._login, data_folder=None)
            self.renewed(token)
        else:
            self._token = token.access_token

    def taken_from_store(self) -> bool:
        """Use a different token that another process has stored meanwhile. Return whether there is one."""
        found = self._store.get(self._server) if self._store else None
        if found is None or self._login is None or found.token == self._login.token:
            return False
        self._login = found
        return True

    def password_again(self) -> LoginRequest | None:
        """Return the password for a new login: the data folder's, if the login came from there."""
        if self._login is None or self._login.data_folder is None:
            return None
        from mooring.wire.tenancy.users import LoginRequest

        password = admin_password(Path(self._login.data_folder))
        return LoginRequest(username=ADMIN, password=password) if password else None


def _basic(access_key: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{access_key}:{secret}".encode()).decode()}


def _fresh(login: Login, token: Token) -> Login:
    now = time.time()
    return replace(login, token=token.access_token, obtained_at=now, expires_at=now + token.expires_in)
