"""The checker finds what it is there for: a true story passes, and each false one violates its rule."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from tests.system.faults.checker import check, check_empty
from tests.system.faults.load import Accepted, Booked, Booking, Work
from tests.system.faults.records import Records

START = datetime(2030, 1, 1, tzinfo=UTC)
NODE, OWNER = UUID(int=1), UUID(int=2)
JOB, REPLICA = Work("job", tasks=2, seconds=1.0, gang=True), Work("replica", apart=True)
Tables = dict[str, Any]


def test_consistent_records_have_no_violation() -> None:
    story = Story()
    assert check(story.records(), story.accepted, story.booked) == []


Change = Callable[["Story"], None]


def _a_timeslot_is_lost(story: Story) -> None:
    story.tables["timeslots"].pop()


def _a_timeslot_is_there_twice(story: Story) -> None:
    story.tables["timeslots"].append({**story.tables["timeslots"][0], "id": UUID(int=99)})


def _a_timeslot_outlives_its_end(story: Story) -> None:
    story.tables["timeslots"][0]["status"] = "ACTIVE"


def _a_promise_is_forgotten(story: Story) -> None:
    story.tables["timeslots"][1]["status"] = "ENDED"


def _a_promise_exceeds_the_capacity(story: Story) -> None:
    story.tables["places"][-1]["tasks"] = 1


def _a_timeslot_takes_an_edge_that_is_none(story: Story) -> None:
    own = story.booked["soon"].id
    story.tables["history"] = [
        row for row in story.tables["history"] if (row["object_id"], row["new_status"]) != (own, "CONFIRMED")
    ]
    next(r for r in story.tables["history"] if r["new_status"] == "ACTIVE")["old_status"] = "REQUESTED"


def _a_deposed_leader_writes(story: Story) -> None:
    story.tables["events"][-1]["term"] = 1


def _two_lead_in_one_term(story: Story) -> None:
    line = "Deployment scheduler started successfully (term 2)"
    story.tables["logs"] = {"scheduler-1": line, "scheduler-2": line}


def _an_edge_is_left_out(story: Story) -> None:
    story.forget("RUNNING", "history")
    story.forget("RUNNING", "events")


def _an_event_is_recorded_twice(story: Story) -> None:
    event = next(row for row in story.tables["events"] if row["kind"] == "SUCCEEDED" and row["noun"] == "task")
    story.tables["events"].append({**event, "revision": 10_000})


def _a_task_starts_twice(story: Story) -> None:
    story.tables["notes"][story.task("job", 0)["id"]].insert(0, "start 1")


def _a_task_nobody_placed_runs(story: Story) -> None:
    story.tables["notes"][UUID(int=99)] = ["start 1"]


def _a_task_is_on_two_nodes(story: Story) -> None:
    story.tables["exits"]["agent-2"] = {story.task("job", 0)["id"]: 0}


def _a_success_is_made_up(story: Story) -> None:
    story.tables["notes"][story.task("job", 0)["id"]].pop()


def _an_exit_code_is_made_up(story: Story) -> None:
    story.tables["exits"]["agent-1"][story.task("job", 0)["id"]] = 1


def _what_runs_is_not_there(story: Story) -> None:
    story.tables["processes"] = frozenset()


def _what_ended_still_runs(story: Story) -> None:
    story.tables["processes"] |= {story.task("job", 0)["id"]}


def _what_ended_is_charged_for_ever(story: Story) -> None:
    story.task("job", 0)["freed_at"] = None


def _waiting_counts_as_an_attempt(story: Story) -> None:
    story.task("job", 1)["failures"] = 1


def _a_node_is_over_full(story: Story) -> None:
    story.tables["resources"][0]["allocatable"] = 1500


def _a_task_is_placed_on_a_lost_node(story: Story) -> None:
    for row in story.tables["history"]:
        if row["noun"] == "node":
            row["new_status"] = "LOST"


def _a_gang_is_placed_in_parts(story: Story) -> None:
    placed = [row for row in story.tables["events"] if row["kind"] == "SCHEDULED"]
    placed[1]["transaction_id"] = 10_000


def _a_replica_is_where_none_may_be(story: Story) -> None:
    story.workload("replica")["max_per_node"] = 0


def _an_accepted_workload_is_lost(story: Story) -> None:
    story.accepted["other"] = Accepted(Work("other", seconds=1.0), UUID(int=77))


def _a_workload_is_there_twice(story: Story) -> None:
    story.tables["workloads"].append({**story.workload("replica"), "id": UUID(int=78)})


def _a_job_fails_without_its_fault(story: Story) -> None:
    story.workload("job")["status"] = "FAILED"


def _a_replica_is_missing(story: Story) -> None:
    story.workload("replica")["replicas"] = 2


def _a_cancelled_deployment_runs(story: Story) -> None:
    story.accepted["replica"].stop_requested = True


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_a_deposed_leader_writes, "I7"),
        (_two_lead_in_one_term, "I7"),
        (_an_edge_is_left_out, "edges"),
        (_an_event_is_recorded_twice, "I8"),
        (_a_task_starts_twice, "started once"),
        (_a_task_nobody_placed_runs, "nobody had placed it"),
        (_a_task_is_on_two_nodes, "was on agent-1 and agent-2"),
        (_a_success_is_made_up, "true ends"),
        (_an_exit_code_is_made_up, "true ends"),
        (_what_runs_is_not_there, "nothing runs"),
        (_what_ended_still_runs, "runs, and is not RUNNING"),
        (_what_ended_is_charged_for_ever, "still charged"),
        (_waiting_counts_as_an_attempt, "I11"),
        (_a_node_is_over_full, "I1:"),
        (_a_task_is_placed_on_a_lost_node, "I14: revision"),
        (_a_gang_is_placed_in_parts, "I4"),
        (_a_replica_is_where_none_may_be, "I14: 1 tasks of replica"),
        (_an_accepted_workload_is_lost, "was accepted and is not there"),
        (_a_workload_is_there_twice, "is there 2 times"),
        (_a_job_fails_without_its_fault, "its command succeeds"),
        (_a_replica_is_missing, "accepted: workload replica"),
        (_a_cancelled_deployment_runs, "was told to end"),
        (_a_timeslot_is_lost, "was taken and is not there"),
        (_a_timeslot_is_there_twice, "timeslot soon is there 2 times"),
        (_a_timeslot_outlives_its_end, "should be over"),
        (_a_promise_is_forgotten, "its time has not come"),
        (_a_promise_exceeds_the_capacity, "has 1 places of 2"),
        (_a_timeslot_takes_an_edge_that_is_none, "went from REQUESTED to ACTIVE"),
    ],
)
def test_each_inconsistency_violates_its_rule(change: Change, rule: str) -> None:
    story = Story()
    change(story)
    assert any(rule in str(found) for found in check(story.records(), story.accepted, story.booked))


@pytest.mark.parametrize(
    ("evicted", "failures", "rules"),
    [
        pytest.param(True, 0, [], id="an eviction uses no retry"),
        pytest.param(True, 1, ["I11 attempts"], id="an eviction counts as a failure"),
        pytest.param(False, 1, ["accepted"], id="a failure is retried without a retry left"),
    ],
)
def test_evicted_tasks_use_no_retries(evicted: bool, failures: int, rules: list[str]) -> None:
    story = Story()
    story.fail_twice(evicted=evicted, failures=failures)
    assert [found.rule for found in check(story.records(), story.accepted, story.booked)] == rules


def test_orphans_of_ended_work_are_found() -> None:
    found = {str(violation) for violation in check_empty(Story().records())}
    assert any("workload replica is RUNNING" in each for each in found)
    assert any("cpu of node" in each for each in found)
    assert any("still runs" in each for each in found)


class Story:
    """A job of two tasks that starts and ends together, and a replica that still runs, on one node; two timeslots."""

    def __init__(self) -> None:
        lists = ("events", "history", "tasks", "workloads", "resources", "ledger", "users", "timeslots", "places")
        self.tables: Tables = {name: [] for name in lists}
        self.tables |= {"notes": {}, "exits": {"agent-1": {}}, "logs": {}, "processes": frozenset()}
        self.accepted: dict[str, Accepted] = {}
        self.booked: dict[str, Booked] = {}
        self._transaction = 0
        counters = {"held": 0, "reserved": 0, "used": 500, "leaving": 0}
        self.tables["resources"].append({"node_id": NODE, "slot_name": "cpu", "allocatable": 2500, **counters})
        self._commit(("node", NODE, None, "LOST", "READY"))
        self._submit(JOB, UUID(int=10), cpu=1000)
        self._submit(REPLICA, UUID(int=20), cpu=500)
        both = [self.task("job", index) for index in (0, 1)]
        for old, new in (("PENDING", "SCHEDULED"), ("SCHEDULED", "RUNNING"), ("RUNNING", "SUCCEEDED")):
            self._move(both, old, new)
            self._move([self.task("replica", 0)], old, new) if new != "SUCCEEDED" else None
        for task in both:
            task |= {"status": "SUCCEEDED", "exit_code": 0, "freed_at": START}
            self.tables["notes"][task["id"]] = ["start 1", "end"]
            self.tables["exits"]["agent-1"][task["id"]] = 0
        running = self.task("replica", 0)
        running["status"] = "RUNNING"
        self.tables["notes"][running["id"]] = ["start 1"]
        self.tables["exits"]["agent-1"][running["id"]] = None
        self.tables["processes"] = frozenset({running["id"]})
        self._book(Booking("soon", 5, 5, 0.1, 1), UUID(int=30), "CONFIRMED", "ACTIVE", "ENDED")
        self._book(Booking("far", 3600, 3600, 0.1, 2), UUID(int=31), "CONFIRMED")

    def fail_twice(self, *, evicted: bool, failures: int) -> None:
        """Add a job without retries that fails in both of its attempts, the first perhaps after it was evicted."""
        work = Work("failing", seconds=1.0, exit_code=3)
        self._submit(work, UUID(int=40), cpu=100, status="FAILED")
        first = self.task("failing", 0)
        second = {**first, "id": UUID(int=42), "attempt": 2, "failures": failures}
        first["current"] = False
        self.tables["tasks"].append(second)
        for task in (first, second):
            left = ("TERMINATING",) if evicted and task is first else ()
            for old, new in pairwise(("PENDING", "SCHEDULED", "RUNNING", *left, "FAILED")):
                self._move([task], old, new)
            task |= {"status": "FAILED", "exit_code": 3, "freed_at": START}
            self.tables["notes"][task["id"]] = ["start 1", "end"]
            self.tables["exits"]["agent-1"][task["id"]] = 3

    def records(self) -> Records:
        return Records(**deepcopy(self.tables))

    def workload(self, name: str) -> dict[str, Any]:
        return next(row for row in self.tables["workloads"] if row["name"] == name)

    def task(self, workload: str, index: int) -> dict[str, Any]:
        own = self.workload(workload)["id"]
        return next(row for row in self.tables["tasks"] if (row["workload_id"], row["task_index"]) == (own, index))

    def forget(self, status: str, table: str) -> None:
        """Remove the history of the replica's task."""
        key = "kind" if table == "events" else "new_status"
        own = self.task("replica", 0)["id"]
        self.tables[table] = [r for r in self.tables[table] if (r["object_id"], r[key]) != (own, status)]

    def _book(self, booking: Booking, id: UUID, *statuses: str) -> None:
        self.booked[booking.name] = Booked(booking, id)
        self.tables["timeslots"].append({"id": id, "name": booking.name, "status": statuses[-1]})
        self.tables["places"].append({"timeslot_id": id, "node_id": NODE, "tasks": booking.count})
        for old, new in pairwise(("none", "REQUESTED", *statuses)):
            self._commit(("timeslot", id, None, old, new), term=2)

    def _submit(self, work: Work, id: UUID, *, cpu: int, status: str = "SUCCEEDED") -> None:
        self.accepted[work.name] = Accepted(work, id, replicas=work.tasks)
        ended = work.seconds is not None
        self.tables["workloads"].append(
            {
                "id": id,
                "name": work.name,
                "kind": work.kind,
                "user_id": OWNER,
                "status": status if ended else "RUNNING",
                "replicas": work.tasks,
                "gang": work.gang,
                "max_per_node": 1 if work.apart else None,
                "code": None,
            }
        )
        for index in range(work.tasks):
            self.tables["tasks"].append(
                {
                    "id": UUID(int=id.int + 1 + index),
                    "workload_id": id,
                    "task_index": index,
                    "attempt": 1,
                    "current": True,
                    "status": "PENDING",
                    "node_id": NODE,
                    "node_name": "agent-1",
                    "requested_slots": {"cpu": cpu},
                    "exit_code": None,
                    "failures": 0,
                    "code": None,
                    "created_at": START,
                    "freed_at": None,
                }
            )
        final = status if ended else "RUNNING"
        self._commit(("workload", id, id, "none", "PENDING"), ("workload", id, id, "PENDING", final))

    def _move(self, tasks: list[dict[str, Any]], old: str, new: str) -> None:
        self._commit(*(("task", task["id"], task["workload_id"], old, new) for task in tasks), term=2)

    def _commit(self, *changes: tuple[str, UUID, UUID | None, str, str], term: int | None = None) -> None:
        self._transaction += 1
        at = START + timedelta(seconds=self._transaction)
        for noun, id, workload, old, new in changes:
            shared = {"noun": noun, "object_id": id, "workload_id": workload, "at": at, "term": term}
            events, history = self.tables["events"], self.tables["history"]
            events.append(
                {"revision": len(events), "kind": new, "node_id": NODE, "transaction_id": self._transaction, **shared}
            )
            history.append({"id": len(history), "old_status": old, "new_status": new, **shared})
