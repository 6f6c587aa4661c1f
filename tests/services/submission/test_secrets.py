"""Work whose secrets could not be delivered is rejected at submission."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mooring.clock import now
from mooring.model.workloads.containers import Container, TaskTemplate
from mooring.security import encryption
from mooring.security.encryption import SecretBox
from mooring.services.submission.secrets import MAX_TASK_BYTES, refusals
from mooring.store.core.engine import Connection
from mooring.store.tenancy import (
    admin_actions,
    projects,
    secrets,
    tenants,
)
from mooring.wire.workloads.secrets import MAX_SECRET_BYTES
from tests.sealing import some_keys
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


async def keep(harness: Harness, name: str, size: int = 5) -> None:
    async def work(connection: Connection) -> None:
        project = await projects.find(connection, tenants.DEFAULT_DOMAIN, tenants.DEFAULT_PROJECT)
        await secrets.put(connection, project, name, b"x" * size, some_keys(), actor=admin_actions.SERVER, now=now())

    await harness.database.write(work)


def naming(*names: str) -> TaskTemplate:
    before = Container(name="first", command=("true",), secrets={"a": names[0]} if names else {})
    return TaskTemplate(
        (Container(command=("true",), secrets={f"file-{name}": name for name in names[1:]}),), init_containers=(before,)
    )


async def refused(
    harness: Harness, template: TaskTemplate, *, project: UUID | None = None, keys: SecretBox | None = None
) -> tuple[str, str] | None:
    async with harness.database.read() as connection:
        work = uuid4(), project or harness.principal.project_id, template
        found = (await refusals(connection, [work], keys or some_keys())).get(work[0])
    return None if found is None else (found.code, found.message)


@on_sqlite
async def test_secrets_must_exist_in_the_project_of_the_work(harness: Harness):
    await keep(harness, "db")
    assert await refused(harness, naming()) is None
    assert await refused(harness, naming("db")) is None
    missing = await refused(harness, naming("db", "mail"))
    assert missing is not None
    assert (missing[0], "'mail'" in missing[1], "'db'" in missing[1]) == ("no-such-secret", True, False)
    elsewhere = await refused(harness, naming("db"), project=uuid4())
    assert elsewhere is not None
    assert elsewhere[0] == "no-such-secret"


@on_sqlite
async def test_a_secret_without_its_key_is_reported_at_once(harness: Harness, tmp_path: Path):
    await keep(harness, "db")
    encryption.ensure(tmp_path / "keys")
    for keys in (SecretBox(tmp_path / "keys"), SecretBox(None)):
        found = await refused(harness, naming("db"), keys=keys)
        assert found is not None
        assert found[0] == "sealing-key-missing"


@on_sqlite
@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
async def test_the_total_size_of_the_secrets_of_a_task_is_limited(harness: Harness, more: int, fits: bool):
    names = [f"s{number}" for number in range(MAX_TASK_BYTES // MAX_SECRET_BYTES)]
    for name in names:
        await keep(harness, name, MAX_SECRET_BYTES)
    if more:
        await keep(harness, "last", more)
        names.append("last")
    found = await refused(harness, naming(*names))
    assert (found is None) == fits
    assert found is None or found[0] == "secrets-too-large"
