"""Huge pages: what an operator has set apart, and limits in cgroups of both versions."""

from __future__ import annotations

from pathlib import Path

from mooring.agent.node import hugepages, usage_counters

MIB = 1024**2


def test_reserved_huge_pages_are_the_capacity_of_their_size(tmp_path: Path):
    for size, count in (("2048kB", "512"), ("1048576kB", "0")):
        (tmp_path / f"hugepages-{size}").mkdir()
        (tmp_path / f"hugepages-{size}" / "nr_hugepages").write_text(count)
    assert hugepages.capacity(tmp_path) == {"hugepages-2Mi": 1024 * MIB}


def test_a_container_is_limited_to_its_huge_pages_and_none_of_other_sizes(tmp_path: Path):
    files = ["hugetlb.2MB.limit_in_bytes", "hugetlb.1GB.limit_in_bytes", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"]
    for name in files:
        (tmp_path / name).write_text("before")
    asked = {"hugepages-2Mi": 4 * MIB}
    hugepages.hold({"hugetlb": tmp_path}, asked)
    hugepages.hold({usage_counters.UNIFIED: tmp_path}, asked)
    assert [(tmp_path / name).read_text() for name in files] == [str(4 * MIB), "0", str(4 * MIB), "before"]


def test_the_mounts_say_whether_limits_can_be_had(tmp_path: Path):
    unified = f"30 1 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw"
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert not hugepages.enforced(unified)
    (tmp_path / "cgroup.controllers").write_text("cpu hugetlb memory\n")
    assert hugepages.enforced(unified)
    assert hugepages.enforced("31 1 0:27 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb")
