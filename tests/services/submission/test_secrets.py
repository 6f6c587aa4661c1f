"""Work is refused at submission where it is known that it could not be told its secrets."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mooring import sealing
from mooring.clock import now
from mooring.intake.secrets import MAX_TASK_BYTES, refusals
from mooring.model.containers import Container, TaskTemplate
from mooring.sealing import Sealing
from mooring.store import actions, projects, secrets, tenants
from mooring.store.engine import Connection
from mooring.wire.secrets import MAX_SECRET_BYTES
from tests.sealing import some_keys
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


async def keep(harbour: Harbour, name: str, size: int = 5) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, tenants.DEFAULT_DOMAIN, tenants.DEFAULT_PROJECT)
        await secrets.put(connection, project, name, b"x" * size, some_keys(), actor=actions.SERVER, now=now())

    await harbour.database.write(work)


def naming(*names: str) -> TaskTemplate:
    before = Container(name="first", command=("true",), secrets={"a": names[0]} if names else {})
    return TaskTemplate(
        (Container(command=("true",), secrets={f"file-{name}": name for name in names[1:]}),), init_containers=(before,)
    )


async def refused(
    harbour: Harbour, template: TaskTemplate, *, project: UUID | None = None, keys: Sealing | None = None
) -> tuple[str, str] | None:
    async with harbour.database.read() as connection:
        work = uuid4(), project or harbour.principal.project_id, template
        found = (await refusals(connection, [work], keys or some_keys())).get(work[0])
    return None if found is None else (found.code, found.message)


@on_sqlite
async def test_secrets_must_exist_in_the_project_of_the_work(harbour: Harbour):
    await keep(harbour, "db")
    assert await refused(harbour, naming()) is None
    assert await refused(harbour, naming("db")) is None
    missing = await refused(harbour, naming("db", "mail"))
    assert missing is not None
    assert (missing[0], "'mail'" in missing[1], "'db'" in missing[1]) == ("no-such-secret", True, False)
    elsewhere = await refused(harbour, naming("db"), project=uuid4())
    assert elsewhere is not None
    assert elsewhere[0] == "no-such-secret"


@on_sqlite
async def test_a_secret_whose_key_is_missing_is_told_at_once(harbour: Harbour, tmp_path: Path):
    await keep(harbour, "db")
    sealing.ensure(tmp_path / "keys")
    for keys in (Sealing(tmp_path / "keys"), Sealing(None)):
        found = await refused(harbour, naming("db"), keys=keys)
        assert found is not None
        assert found[0] == "sealing-key-missing"


@on_sqlite
@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
async def test_the_secrets_of_a_task_have_a_limit_together(harbour: Harbour, more: int, fits: bool):
    names = [f"s{number}" for number in range(MAX_TASK_BYTES // MAX_SECRET_BYTES)]
    for name in names:
        await keep(harbour, name, MAX_SECRET_BYTES)
    if more:
        await keep(harbour, "last", more)
        names.append("last")
    found = await refused(harbour, naming(*names))
    assert (found is None) == fits
    assert found is None or found[0] == "secrets-too-large"
