"""A series of 500 bookings beside 10,000 others until the last is decided, and the calendar of all; SQLite."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from mooring.client import AsyncClient
from mooring.wire.workloads.timeslots import TimeslotRequest
from tests.system.servers import PASSWORD, running_server

SERIES = 20
OCCURRENCES = 500
MEASURED = 3


def run() -> dict[str, float]:
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        options = ("--simulate", "50", "--no-agent", "--log-level", "warning")
        with running_server(Path(folder) / "data", *options) as server:
            return asyncio.run(_measured(server.url))


async def _measured(url: str) -> dict[str, float]:
    async with AsyncClient(url) as client:
        await client.login("admin", PASSWORD)
        for number in range(SERIES):
            await _book(client, number)
        series = [await _book(client, SERIES + number) for number in range(MEASURED)]
        feeds: list[float] = []
        for _ in range(MEASURED):
            started = time.perf_counter()
            events = (await client.calendar()).count("BEGIN:VEVENT")
            feeds.append(time.perf_counter() - started)
    return {
        "bookings": SERIES * OCCURRENCES,
        "series_seconds": min(series),
        "calendar_events": events,
        "calendar_seconds": min(feeds),
    }


async def _book(client: AsyncClient, number: int) -> float:
    """Return the seconds until all occurrences of one more series are decided."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=2, hours=number % 20)
    request = TimeslotRequest.model_validate(
        {
            "start": start,
            "duration": "2h",
            "pool": "simulated",
            "resources": {"cpu": "1"},
            "rule": f"FREQ=DAILY;COUNT={OCCURRENCES}",
        }
    )
    started = time.perf_counter()
    accepted = await client.book(request)
    while (await client.wait_for_timeslot(str(max(accepted.ids)))).status == "REQUESTED":
        pass
    return time.perf_counter() - started
