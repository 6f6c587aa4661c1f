"""A small web site: a deployment whose replicas run until they are stopped, and a probe for it."""

from __future__ import annotations

import contextlib
import json
import signal
import urllib.request
from collections.abc import Iterator
from uuid import UUID

from mooring.client import Client
from mooring.wire.workloads.tasks import TaskView
from tests.engine import BUSYBOX
from tests.system.servers import Cli


def site(script: str, *, drain_seconds: int, server: str, rest: str = "") -> str:
    """A file of it. The script begins what is served; further lines are of that container, and of the whole."""
    running = f"{script}sleep 1000 &\nwait\n"
    return f"""
kind: deployment
name: site
replicas: 2
rollout: {{surge: 1, unavailable: 0, drain_seconds: {drain_seconds}}}
containers:
  - name: server
    image: {BUSYBOX}
    pull: never
    command: [sh, -c, {json.dumps(running)}]
    environment: {{REVISION: "1"}}
    ports: [8080]
    resources: {{cpu: 100m}}
{server}
{rest}
"""


def at_revision(text: str, revision: int) -> str:
    """The file with another template, which its containers know by this number."""
    return text.replace('REVISION: "1"', f'REVISION: "{revision}"')


def listed(client: Client) -> set[UUID]:
    """The endpoints: tasks that accept traffic."""
    return {each.task for each in client.endpoints("site").endpoints}


def replicas(client: Client, revision: int) -> list[TaskView]:
    return [task for task in client.workload("site").tasks if task.current and task.revision == revision]


def rolled_out(client: Client, revision: int) -> bool:
    """Nothing is left of earlier ones."""
    detail = client.workload("site")
    assert detail.rollout is not None
    gone = all(task.ended_at for task in detail.tasks if not task.current)
    return (detail.rollout.phase, detail.rollout.revision, gone) == ("done", revision, True)


@contextlib.contextmanager
def forwarding(mooring: Cli) -> Iterator[str]:
    """The address on this machine that leads there during the block."""
    with mooring.begin("forward", "site", "0:8080") as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[0]
        finally:
            process.send_signal(signal.SIGINT)


def page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
        return text.strip()
