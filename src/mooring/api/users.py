"""Users, for admins."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mooring.api.access import Admin, Served, is_name
from mooring.api.errors import problems
from mooring.api.passwords import new_password
from mooring.api.showing import user_view
from mooring.model.errors import NotFound
from mooring.model.tenants import Role
from mooring.store import tenants
from mooring.store.tenants import DEFAULT_PROJECT
from mooring.wire.api import UserChange, UserCreated, UserRequest, UserView

router = APIRouter(prefix="/api/users", tags=["users"], responses=problems(401, 403, 422, 503))


@router.post("", status_code=201, operation_id="create_user", responses=problems(400, 409, 413))
async def create_user(services: Served, admin: Admin, new: UserRequest, response: Response) -> UserCreated:
    """Make a user. Without a password one is made up and shown in this answer only."""
    made_up = new_password() if new.password is None else None
    password_hash = await services.passwords.hash(new.password or made_up or "")
    await services.database.write(
        lambda c: tenants.create_user(
            c,
            username=new.username,
            role=Role(new.role),
            domain_id=admin.domain_id,
            project=new.project or DEFAULT_PROJECT,
            password_hash=password_hash,
            now=services.now(),
            os_user=new.os_user or None,
        )
    )
    response.headers["Cache-Control"] = "no-store"
    async with services.database.read() as connection:
        user = await tenants.find_user(connection, new.username)
    return UserCreated(**dict(user_view(user)), password=made_up)


@router.get("", operation_id="list_users")
async def list_users(services: Served, _admin: Admin) -> list[UserView]:
    """Every user."""
    async with services.database.read() as connection:
        return [user_view(user) for user in await tenants.list_users(connection)]


@router.patch("/{username}", operation_id="change_user", responses=problems(400, 404, 409, 413))
async def change_user(services: Served, _admin: Admin, username: str, change: UserChange) -> UserView:
    """Change a user's role, state, OS user or password. A new password and a deactivation end the user's tokens."""
    if not is_name(username):
        raise NotFound(f"there is no user {username[:63]!r}")
    async with services.database.read() as connection:
        await tenants.find_user(connection, username)
    password_hash = await services.passwords.hash(change.password) if change.password is not None else None
    await services.database.write(
        lambda c: tenants.change_user(
            c,
            username,
            role=Role(change.role) if change.role is not None else None,
            active=change.active,
            os_user=change.os_user,
            password_hash=password_hash,
        )
    )
    async with services.database.read() as connection:
        return user_view(await tenants.find_user(connection, username))
