"""A rollout of real containers that is paused, resumed and rolled back; and the replicas removed by scaling down."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from mooring.agent.runtimes.container.specification import name_of
from mooring.client.applying import Result
from tests.system.containers.conftest import Box, write
from tests.system.containers.site import at_revision, listed, replicas, rolled_out, site
from tests.system.servers import eventually

SITE = site(
    "[ $REVISION = 2 ] || touch /tmp/well\ntrap 'exit 0' TERM\n",
    drain_seconds=0,
    server="""
    readiness: {command: [test, -e, /tmp/well], interval_seconds: 2, timeout_seconds: 2, failures: 3}
    liveness: {command: [test, "!", -e, /tmp/dead], interval_seconds: 2, timeout_seconds: 2, failures: 3}
""",
    rest="restart: never",
)


@pytest.mark.slow
def test_a_paused_rollout_waits_for_resume_and_replaces_unhealthy_replicas_first(box: Box, tmp_path: Path) -> None:
    client = box.client
    assert write(client, tmp_path, SITE) is Result.CREATED
    eventually(lambda: len(listed(client)) == 2)
    elder, other = sorted(replicas(client, 1), key=lambda task: (task.created_at, task.index))
    assert write(client, tmp_path, at_revision(SITE, 2)) is Result.UPDATED
    eventually(lambda: [task.status for task in replicas(client, 2)] == ["RUNNING"])
    [second] = replicas(client, 2)
    client.pause_rollout("site")
    mark(box, second.id, "touch", "well")
    eventually(lambda: len(listed(client)) == 3)

    # It scales up by the revision of most replicas meanwhile, and none is replaced.
    assert write(client, tmp_path, at_revision(SITE, 3)) is Result.UPDATED
    client.scale("site", 4)
    eventually(lambda: len(listed(client)) == 4)
    assert {elder.id, other.id, second.id} < listed(client)
    assert [len(replicas(client, revision)) for revision in (1, 2, 3)] == [3, 1, 0]

    # Of four the eldest, which is not well, and then the newest.
    mark(box, elder.id, "rm", "well")
    eventually(lambda: elder.id not in listed(client))
    client.scale("site", 2)
    eventually(lambda: listed(client) == {other.id, second.id})

    client.roll_back("site", 1)
    assert [task.id for task in replicas(client, 4)] == [other.id]
    assert [task.id for task in replicas(client, 2)] == [second.id]
    client.resume_rollout("site")
    eventually(lambda: rolled_out(client, 4))
    assert other.id in listed(client)
    assert second.id not in listed(client)
    assert len(listed(client)) == 2
    assert [each.cause for each in client.revisions("site").revisions][-1] == "back to revision 1"

    # What does not live any more is killed, and another one is there instead.
    mark(box, other.id, "touch", "dead")
    eventually(lambda: len(listed(client) - {other.id}) == 2)
    [ended] = [task for task in client.workload("site").tasks if task.id == other.id]
    assert (ended.status, ended.exit_code) == ("FAILED", 137)
    assert "liveness" in (ended.reason or "")


def mark(box: Box, task: UUID, how: str, word: str) -> None:
    """Write the file that its probes read."""
    box.engine.run("exec", name_of(task, "server"), how, f"/tmp/{word}")
