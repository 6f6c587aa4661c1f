"""Logins, users and their passwords."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import StringConstraints

from mooring.wire.fields import TAKES_AWAY, UNSHOWN, Answer, Name, Password, Request, ShortText


class LoginRequest(Request):
    username: ShortText
    password: Annotated[str, StringConstraints(max_length=256), UNSHOWN]


class RedeemRequest(Request):
    code: Annotated[str, StringConstraints(min_length=1, max_length=128), UNSHOWN]
    """Of a one-time link: the part after `code=`."""


class LoginCode(Answer):
    """A one-time code for another login of the caller, for example in a browser."""

    code: Annotated[str, UNSHOWN]
    expires_in: int
    """Seconds."""


class Token(Answer):
    access_token: Annotated[str, UNSHOWN]
    token_type: Literal["bearer"] = "bearer"
    expires_in: int
    """Seconds."""


class LoginView(Answer):
    """A login by password that has not ended."""

    id: UUID
    user: str
    address: str | None
    """The client's address at the login."""
    created_at: datetime
    last_used_at: datetime
    """To a few minutes."""
    expires_at: datetime
    """It ends then unless it is renewed."""
    current: bool = False
    """It is the login of this request."""


class PasswordChange(Request):
    old_password: Annotated[str, StringConstraints(max_length=256), UNSHOWN]
    new_password: Annotated[Password, UNSHOWN]
    revoke_keypairs: bool = False
    """Also deactivate the user's keypairs that have a secret: programs that use them need new ones."""


class UserRequest(Request):
    username: Name
    password: Annotated[Password | None, UNSHOWN] = None
    """None: a random one is generated and shown once."""
    role: Literal["admin", "domain-admin", "user"] = "user"
    domain: Name | None = None
    """None: the domain of the caller."""
    project: Name | None = None
    """Created if it does not exist; None: the default project."""
    os_user: ShortText | None = None


class UserChange(Request):
    """Only the given fields change; `os_user` null or "" removes the mapping, `policy` null or "" the policy."""

    role: Literal["admin", "domain-admin", "user"] | None = None
    active: bool | None = None
    os_user: Annotated[ShortText | None, TAKES_AWAY] = None
    password: Annotated[Password | None, UNSHOWN] = None
    revoke_keypairs: bool = False
    """Also deactivate the user's keypairs that have a secret."""
    project: Name | None = None
    """The default project: one that the user is a member of."""
    policy: Annotated[Name | Literal[""] | None, TAKES_AWAY] = None


class UserView(Answer):
    id: UUID
    username: str
    role: str
    active: bool
    domain: str
    project: str
    os_user: str | None
    policy: str | None = None
    created_at: datetime


class UserCreated(UserView):
    password: Annotated[str | None, UNSHOWN] = None
