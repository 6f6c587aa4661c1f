"""A rolling update under load: requests through `mooring forward` are not affected."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from mooring.client import Client
from mooring.client.applying import Result
from mooring.wire.workloads.rollouts import RolloutRequest, UpdateRequest
from mooring.wire.workloads.volumes import NewVolumeRequest
from tests.system.containers.conftest import Box, write
from tests.system.containers.site import at_revision, forwarding, listed, page, rolled_out, site
from tests.system.servers import Cli, Server, eventually

DRAIN_SECONDS = 3
# It says when it begins to answer, before anybody can have an answer, and when it is told to stop, by the machine's
# own clock. Only its own network leads to it.
SERVING = r"""
mkdir /tmp/www
echo $REVISION > /tmp/www/index.html
sleep 0.5
cut -d' ' -f1 /proc/uptime > /notes/$MOORING_TASK_ID.answers
httpd -p 127.0.0.1:8080 -h /tmp/www
trap "cut -d' ' -f1 /proc/uptime > /notes/$MOORING_TASK_ID.stops; exit 0" TERM
"""
SITE = site(
    SERVING,
    drain_seconds=DRAIN_SECONDS,
    server="""
    mounts: [{volume: notes, path: /notes}]
    readiness: {path: /, port: 8080, interval_seconds: 1, failures: 30}
""",
    rest="volumes: [{name: notes, kind: named}]",
)


@pytest.mark.slow
def test_a_rolling_update_and_its_rollback_lose_no_request(box: Box, tmp_path: Path) -> None:
    client = box.client
    client.create_volume(NewVolumeRequest(name="notes", size="1Mi"))
    assert write(client, tmp_path, SITE) is Result.CREATED
    eventually(lambda: len(listed(client)) == 2)
    first = listed(client)
    with polling(box.server) as looks, asking(box.mooring) as answers:
        assert write(client, tmp_path, at_revision(SITE, 2)) is Result.UPDATED
        eventually(lambda: rolled_out(client, 2))
        second = listed(client)
        client.update("site", UpdateRequest(rollout=RolloutRequest(surge="100%")))
        client.roll_back("site")
        eventually(lambda: rolled_out(client, 3))
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 10)
    assert set(answers) == {"1", "2"}
    assert answers[seen:] == ["1"] * len(answers[seen:])
    assert not first & second
    assert all(len(tasks) >= 2 for _, tasks in looks)

    (notes,) = box.volumes.glob("*/*")
    for task in set().union(*(tasks for _, tasks in looks)):
        assert moment(notes / f"{task}.answers") < next(at for at, tasks in looks if task in tasks)
    retired = retirements(client)
    for task in first | second:
        stopped = moment(notes / f"{task}.stops")
        assert stopped - retired[task] >= DRAIN_SECONDS
        last = max(number for number, (_, tasks) in enumerate(looks) if task in tasks)
        assert looks[last + 1][0] < stopped


def retirements(client: Client) -> dict[UUID, float]:
    """Return the time when each task left the list, by the machine's own clock."""
    began = time.time() - uptime()
    events = client.event_page(workload="site", limit=1000).events
    return {event.id: event.at.timestamp() - began for event in events if event.kind == "retiring"}


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def moment(file: Path) -> float:
    return float(file.read_text())


@contextlib.contextmanager
def polling(server: Server) -> Iterator[list[tuple[float, set[UUID]]]]:
    """Poll the list repeatedly while the block runs, and record each result with its time."""
    looks: list[tuple[float, set[UUID]]] = []
    with server.client() as client:

        def look() -> None:
            found = listed(client)
            looks.append((uptime(), found))

        with repeating(look):
            yield looks


@contextlib.contextmanager
def asking(mooring: Cli) -> Iterator[list[str]]:
    """Collect the responses to a client that sends requests repeatedly while the block runs."""
    answers: list[str] = []
    with forwarding(mooring) as address:

        def ask() -> None:
            answers.append(page(address))

        with repeating(ask), repeating(ask):
            yield answers


@contextlib.contextmanager
def repeating(work: Callable[[], object]) -> Iterator[None]:
    """Do it in a thread while the block runs; what fails there fails here."""
    over, problems = threading.Event(), list[Exception]()

    def repeat() -> None:
        try:
            while not over.wait(0.03):
                work()
        except Exception as problem:
            problems.append(problem)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise problems[0]
