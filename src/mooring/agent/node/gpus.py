"""GPUs as the driver's tool lists and measures them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mooring.wire.agents.agent_protocol import DeviceFact
from mooring.wire.agents.desired_tasks import DesiredTask

_TOOL = "nvidia-smi"
_SLOT = "gpu"
_SECONDS = 10
_MIB = 1024 * 1024
_MEASURED = re.compile(r"(\d{1,5}), *(\d{1,3}), *(\d{1,9})")
"""Index, percent of the time in which it was busy, and MiB in use."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of a device, or of a task's part of devices."""

    millidevices: int
    """Thousandths of a device that is busy all the time."""
    memory_bytes: int


def gpus() -> list[DeviceFact]:
    """Return the devices that the driver's tool lists; none without the tool."""
    return [device for line in _query("index,name,memory.total") if (device := _device(line)) is not None]


def gpu_use() -> dict[int, GpuUse]:
    """Return the present use of the devices that the driver's tool measures, by index."""
    found: dict[int, GpuUse] = {}
    for line in _query("index,utilization.gpu,memory.used"):
        # A device that cannot be measured, such as one that is partitioned, has `[N/A]`.
        if measured := _MEASURED.fullmatch(line.strip()):
            index, percent, mib = map(int, measured.groups())
            found[index] = GpuUse(min(percent, 100) * 10, mib * _MIB)
    return found


def has_gpus(tasks: Sequence[DesiredTask]) -> bool:
    return any(task.action == "run" and task.devices.get(_SLOT) for task in tasks)


def use_of_tasks(tasks: Sequence[DesiredTask], uses: Mapping[int, GpuUse]) -> dict[UUID, GpuUse]:
    """Return the use by each running task of its devices. Tasks on one device count for it by their shares."""
    running = [task for task in tasks if task.action == "run" and task.devices.get(_SLOT)]
    shares: Counter[int] = Counter()
    for task in running:
        for index, amount in task.devices[_SLOT]:
            shares[index] += amount
    found: dict[UUID, GpuUse] = {}
    for task in running:
        parts = [(uses[index], amount / shares[index]) for index, amount in task.devices[_SLOT] if index in uses]
        if parts:
            found[task.task_id] = GpuUse(
                round(sum(use.millidevices * share for use, share in parts)),
                round(sum(use.memory_bytes * share for use, share in parts)),
            )
    return found


def _query(fields: str) -> list[str]:
    tool = shutil.which(_TOOL)
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.splitlines()


def _device(line: str) -> DeviceFact | None:
    """Return the device of a line such as `0, NVIDIA A100-SXM4-80GB, 81920`, with memory in MiB."""
    index, _, rest = line.partition(",")
    model, _, memory = rest.rpartition(",")
    if not index.strip().isdigit():
        return None
    known = memory.strip().isdigit()
    return DeviceFact(
        index=int(index),
        model=model.strip()[:255] or None,
        memory=int(memory) * _MIB if known else None,
    )
