"""Enforcement of limits: cgroup settings, discovery of cgroups, and the division of memory."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from mooring.agent.node import limits
from mooring.agent.node.limits import (
    Cgroups,
    enforcement,
    find,
    mount_point,
    own_group,
    settings,
)
from mooring.agent.runtimes.process.supervisor.tree import oom_kills

MIB = 1024 * 1024

ALL = frozenset({"cpu", "memory", "pids"})
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
ONLY_OLD = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"


@pytest.mark.parametrize(
    ("mounts", "where"),
    [(UNIFIED, Path("/sys/fs/cgroup")), (HYBRID, Path("/sys/fs/cgroup/unified")), (ONLY_OLD, None), ("", None)],
)
def test_the_v2_hierarchy_is_found_where_it_is_mounted(mounts, where):
    assert mount_point(mounts) == where


def test_the_own_cgroup_is_the_one_of_the_v2_hierarchy():
    assert own_group("12:cpu:/other\n0::/user.slice/user-1000.slice\n") == "/user.slice/user-1000.slice"
    assert own_group("12:cpu:/other\n") == "/"


def test_slots_become_the_limits_of_a_cgroup():
    # 1.5 cores are 150 ms of every 100 ms
    written = settings({"cpu": 1500, "memory": 64 * 1024**2}, 100, ALL)
    assert written["cpu.max"] == "150000 100000"
    assert written["memory.max"] == str(64 * 1024**2)
    assert written["pids.max"] == "100"


def test_a_tiny_cpu_request_is_raised_to_the_minimum_of_the_kernel():
    assert settings({"cpu": 1}, 100, ALL)["cpu.max"] == "1000 100000"


def test_without_controllers_nothing_is_written():
    assert settings({"cpu": 1500, "memory": 1024}, 100, frozenset()) == {}


def test_a_task_gets_a_cgroup_per_container_named_by_ids_only(tmp_path):
    task_id = uuid4()
    folders = Cgroups(tmp_path, ALL).create(task_id, [{"cpu": 1000}, {"memory": 4096}], 64)
    assert folders == [tmp_path / str(task_id) / "0", tmp_path / str(task_id) / "1"]
    assert (folders[0] / "cpu.max").read_text() == "100000 100000"
    assert (folders[1] / "memory.max").read_text() == "4096"
    assert (tmp_path / str(task_id) / "supervisor").is_dir()


def test_limits_that_cannot_be_enforced_are_reported_as_such():
    assert enforcement(None, agent_uid=0) == {"cpu": "none", "memory": "rlimit", "pids": "rlimit", "storage": "none"}
    assert enforcement(None, agent_uid=1000)["pids"] == "none"
    assert enforcement(Cgroups(Path("/x"), ALL), agent_uid=0)["cpu"] == "cgroup"
    assert enforcement(Cgroups(Path("/x"), frozenset()), agent_uid=0)["memory"] == "rlimit"


def test_no_v2_hierarchy_means_no_cgroups():
    assert find(uuid4(), mounts=ONLY_OLD, own="0::/") is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may change every cgroup")
def test_a_user_without_a_delegated_cgroup_gets_none():
    assert find(uuid4(), mounts=UNIFIED, own="0::/") is None


def test_a_delegated_cgroup_below_a_closed_one_is_used(tmp_path, monkeypatch):
    delegated = tmp_path / "user.slice" / "mine"
    delegated.mkdir(parents=True)
    (delegated / "cgroup.procs").touch()
    (delegated / "cgroup.controllers").write_text("cpu memory io pids")
    node_id = uuid4()
    base = delegated / f"mooring-{node_id}"
    base.mkdir()
    (base / "cgroup.controllers").write_text("cpu memory pids")
    mounts = f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw"
    found = find(node_id, mounts=mounts, own="0::/user.slice/mine/app.scope")
    assert found == Cgroups(base, ALL)


def test_the_kernels_count_of_memory_kills_is_read():
    assert oom_kills("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\noom_group_kill 1\n") == 3
    assert oom_kills("") == 0


@pytest.mark.parametrize(
    ("memory", "charged", "private_folders", "expected"),
    [
        # A cgroup charges the task for its files: a tmpfs may be as large as the memory.
        ([100], True, True, [(None, 100)]),
        ([100, 0], True, True, [(None, 100), (None, 128)]),
        # 100 = 75 for data + 25 for files
        ([100], False, True, [(75, 25)]),
        # 400 = (75 + 225) for data + 2 x 50 for files
        ([100, 300], False, True, [(75, 50), (225, 50)]),
        # The container without a request has a part of the task's memory, too.
        ([200, 0], False, True, [(150, 25), (None, 25)]),
        # Without private folders there is no tmpfs, and all memory is for data.
        ([100], False, False, [(100, None)]),
        ([0], False, True, [(None, 256)]),
        ([0, 0], True, True, [(None, 128), (None, 128)]),
    ],
)
def test_data_and_files_in_memory_share_the_memory_of_the_task(
    memory: list[int], charged: bool, private_folders: bool, expected: list[tuple[int | None, int | None]]
) -> None:
    slots = [{"memory": each * MIB} if each else {} for each in memory]
    found = limits.memory_limits(slots, charged=charged, private_folders=private_folders)
    assert [
        (each.data_bytes and each.data_bytes // MIB, each.tmpfs_bytes // MIB if private_folders else None)
        for each in found
    ] == expected


@pytest.mark.parametrize("charged", [False, True])
def test_the_tmpfs_of_a_tiny_task_is_never_unlimited(charged: bool) -> None:
    found = limits.memory_limits([{"memory": 3}], charged=charged, private_folders=True)
    assert found[0].tmpfs_bytes == 4096
