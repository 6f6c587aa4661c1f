"""Before its time is over a task gets the signal that it wished for: once for each deadline, agent or no agent."""

from __future__ import annotations

import time
from uuid import uuid4

from mooring.agent.reconcile import reconcile
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning
from tests.agent.builders import eventually, one, order, seen
from tests.agent.conftest import Node

PATIENT = """
import signal, sys, time
def tell(*_):
    print("warned", flush=True)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), tell)
print("ready", flush=True)
while True:
    time.sleep(0.05)  # not pause(): a signal just before it would wait for the next
"""


def patient(*signals: str) -> DesiredTask:
    """A task that says so whenever it gets one of these."""
    return order("python3", "-c", PATIENT, *signals)


def at(seconds: float, signal: str = "USR1") -> EndWarning:
    return EndWarning(at=time.time() + seconds, signal=signal)


async def says(node: Node, task: DesiredTask, *lines: str) -> None:
    """Wait until the task has said exactly this."""
    log = node.folder(task) / "output-0.log"
    await eventually(lambda: log.exists() and log.read_text().split() == list(lines), f"{lines} in the output")


async def test_every_time_is_warned_of_once(node: Node):
    task = patient("SIGUSR1")
    await node.runtime.start(task)
    await says(node, task, "ready")
    first = at(0.05)
    for _ in range(3):
        await node.runtime.warn(task.task_id, first)
    await says(node, task, "ready", "warned")
    # The next agent finds what was ordered; ordering it again is no second warning, another time is.
    after = Node(node.root, node.node_id)
    await after.runtime.open()
    found = await after.look(task)
    assert found is not None
    assert found.warning == first
    await after.runtime.warn(task.task_id, first)
    await after.runtime.warn(task.task_id, at(-1))
    await says(node, task, "ready", "warned", "warned")
    await after.runtime.close()


async def test_a_postponed_deadline_postpones_its_warning(node: Node):
    task = patient("SIGUSR1", "SIGUSR2")
    await node.runtime.start(task)
    await says(node, task, "ready")
    await node.runtime.warn(task.task_id, at(3600))
    await node.runtime.warn(task.task_id, at(10_000_000))
    await node.runtime.warn(task.task_id, at(0, "USR2"))
    await says(node, task, "ready", "warned")


async def test_a_task_without_a_handler_is_ended_by_the_signal_as_by_any_other(node: Node):
    task = order("sleep", "1000")
    await node.runtime.start(task)
    await node.until(task, "RUNNING")
    await node.runtime.warn(task.task_id, at(0))
    found = await node.end(task)
    assert (found.status, found.reason) == ("FAILED", "killed by signal 10 (SIGUSR1)")
    await node.runtime.warn(task.task_id, at(0))


def test_only_a_living_task_that_should_run_is_warned_and_only_once():
    warning, moved = at(60), at(120)
    task = order("true", task_id=uuid4(), warning=warning)
    assert reconcile([task], one(task, seen("RUNNING"))).warn == ((task.task_id, warning),)
    assert reconcile([task], one(task, seen("RUNNING", warning=warning))).warn == ()
    assert reconcile([task], one(task, seen("RUNNING", warning=moved))).warn == ((task.task_id, warning),)
    stopping = order("true", task_id=task.task_id, warning=warning, action="stop")
    assert reconcile([stopping], one(task, seen("RUNNING"))).warn == ()
    assert reconcile([task], one(task, seen("SUCCEEDED", gone=True))).warn == ()
    unwarned = order("true", task_id=task.task_id)
    assert reconcile([unwarned], one(task, seen("RUNNING"))).warn == ()
