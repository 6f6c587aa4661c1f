"""How limits are kept: what is written to cgroups, and where they are found."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from mooring.agent.limits import Cgroups, enforcement, find, mount_point, own_group, settings
from mooring.agent.supervisor.tree import oom_kills

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


def test_a_tiny_share_of_a_processor_is_raised_to_what_the_kernel_takes():
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


def test_what_cannot_be_kept_is_said_so():
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
