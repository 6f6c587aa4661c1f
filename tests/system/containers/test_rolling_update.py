"""A rolling update under load: whoever asks through `mooring forward` meanwhile notices nothing of it."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from mooring.client import Client
from mooring.client.applying import Result
from mooring.wire.rollouts import RolloutRequest, UpdateRequest
from mooring.wire.volumes import NewVolumeRequest
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box, write
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
sleep 1000 &
wait
"""
SITE = f"""
kind: deployment
name: site
replicas: 2
rollout: {{surge: 1, unavailable: 0, drain_seconds: {DRAIN_SECONDS}}}
containers:
  - image: {BUSYBOX}
    pull: never
    command: [sh, -c, {json.dumps(SERVING)}]
    environment: {{REVISION: "1"}}
    ports: [8080]
    resources: {{cpu: 100m}}
    mounts: [{{volume: notes, path: /notes}}]
    readiness: {{path: /, port: 8080, interval_seconds: 1, failures: 30}}
volumes:
  - {{name: notes, kind: named}}
"""


def test_nobody_notices_a_rolling_update_and_the_way_back(box: Box, tmp_path: Path) -> None:
    client = box.client
    client.create_volume(NewVolumeRequest(name="notes", size="1Mi"))
    assert write(client, tmp_path, SITE) is Result.CREATED
    eventually(lambda: len(listed(client)) == 2)
    first = listed(client)
    with polling(box.server) as looks, asking(box.mooring) as answers:
        assert write(client, tmp_path, SITE.replace('"1"', '"2"')) is Result.UPDATED
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
    client.remove("site")
    eventually(lambda: client.volume("notes").mounted_by == 0)
    client.remove_volume("notes")
    eventually(lambda: not client.volumes())


def listed(client: Client) -> set[UUID]:
    return {each.task for each in client.endpoints("site").endpoints}


def rolled_out(client: Client, revision: int) -> bool:
    detail = client.workload("site")
    assert detail.rollout is not None
    gone = all(task.ended_at for task in detail.tasks if not task.current)
    return (detail.rollout.phase, detail.rollout.revision, gone) == ("done", revision, True)


def retirements(client: Client) -> dict[UUID, float]:
    """When each task left the list, by the machine's own clock."""
    began = time.time() - uptime()
    events = client.event_page(workload="site", limit=1000).events
    return {event.id: event.at.timestamp() - began for event in events if event.kind == "retiring"}


def uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def moment(file: Path) -> float:
    return float(file.read_text())


@contextlib.contextmanager
def polling(server: Server) -> Iterator[list[tuple[float, set[UUID]]]]:
    """Who is listed, again and again while the block runs, and when that was known."""
    looks: list[tuple[float, set[UUID]]] = []
    with server.client() as client, repeating(lambda: looks.append((uptime(), listed(client)))):
        yield looks


@contextlib.contextmanager
def asking(mooring: Cli) -> Iterator[list[str]]:
    """What a client gets that asks again and again while the block runs."""
    answers: list[str] = []
    with mooring.begin("forward", "site", "0:8080") as forwarding:
        assert forwarding.stdout is not None
        address = forwarding.stdout.readline().split()[0]

        def ask() -> None:
            with urllib.request.urlopen(address, timeout=60) as answer:
                answers.append(answer.read().decode().strip())

        try:
            with repeating(ask), repeating(ask):
                yield answers
        finally:
            forwarding.send_signal(signal.SIGINT)


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
