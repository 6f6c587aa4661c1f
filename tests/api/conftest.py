"""Fixtures of the API's tests: a whole API over a migrated database."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from mooring.api.app import create_app
from mooring.store.core.engine import Database
from tests.api.world import World, prepare


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    services, logs, changes, state = await prepare(database, tmp_path / "uploads")
    app = create_app(services)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
        yield World(services, app, client, logs, changes, state)
