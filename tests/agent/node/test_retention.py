"""Retention of ended tasks, and disk problems."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import uuid4

import psutil
import pytest

from mooring.agent.folders import reachable, size_bytes
from mooring.agent.node.facts import machine_facts, measure
from mooring.agent.node.retention import RetainedTask, expired
from mooring.agent.options import Options
from mooring.agent.runtimes.process.isolation import Isolation


def retained(ended_at: float, size_bytes: int = 10) -> RetainedTask:
    return RetainedTask(uuid4(), ended_at, size_bytes)


def test_tasks_that_ended_too_long_ago_are_removed():
    old, young = retained(0.0), retained(90.0)
    assert expired([young, old], now=100.0, keep_seconds=50, keep_bytes=1000) == [old.task_id]


def test_the_oldest_are_removed_until_the_rest_is_small_enough():
    first, second, third = retained(1.0, 40), retained(2.0, 40), retained(3.0, 40)
    assert expired([third, first, second], now=4.0, keep_seconds=100, keep_bytes=80) == [first.task_id]
    assert expired([third, first, second], now=4.0, keep_seconds=100, keep_bytes=79) == [first.task_id, second.task_id]


def test_nothing_is_removed_while_all_is_young_and_small():
    assert expired([retained(1.0), retained(2.0)], now=3.0, keep_seconds=100, keep_bytes=100) == []


def test_a_nearly_full_disk_is_a_problem_with_the_share_used(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(percent=96.0))
    heartbeat = measure([tmp_path], 95.0)
    assert heartbeat.problem is not None
    assert heartbeat.problem.startswith("disk nearly full: 96%")
    assert measure([tmp_path], 97.0).problem is None


def test_facts_contain_the_resources_of_the_machine(tmp_path):
    runtimes = {"process": {"cpu": "none"}}
    facts = machine_facts(tmp_path, runtimes=runtimes, multi_tenant=False, isolation=Isolation(), options=Options())
    assert facts.capacity["cpu"] == (psutil.cpu_count() or 1) * 1000
    assert facts.capacity["memory"] == psutil.virtual_memory().total
    assert facts.capacity["storage"] > 0
    assert facts.boot_id
    assert facts.architecture


def test_the_size_of_a_folder_counts_all_below_and_follows_no_link(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "a" / "up").symlink_to("/")
    assert 100_000 <= size_bytes(tmp_path) < 1_000_000


@pytest.mark.parametrize(("mode", "answer"), [(0o711, True), (0o700, False)])
def test_a_folder_inside_a_closed_one_cannot_be_reached(node_folder, mode, answer):
    (node_folder / "inner").mkdir(mode=0o755)
    node_folder.chmod(mode)
    assert reachable(node_folder / "inner") is answer
