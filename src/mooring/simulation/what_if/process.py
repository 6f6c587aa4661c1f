"""The process that answers one what-if question: with a low priority, and within bounds on CPU time and memory.

It reads a pickled scenario and question from the server that started it, and writes the pickled answer or problem.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from mooring.model.errors import InvalidInput


class Bounds(NamedTuple):
    cpu_seconds: int
    memory_bytes: int
    niceness: int = 10


class Problem(NamedTuple):
    code: str
    message: str


class _CpuTimeUsed(BaseException):
    pass


def main() -> None:
    bounds, payload = pickle.load(sys.stdin.buffer)
    os.nice(bounds.niceness)
    # A machine without memory ends this process rather than its server. Only Linux has the file.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_seconds, bounds.cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (bounds.memory_bytes, bounds.memory_bytes))
    signal.signal(signal.SIGXCPU, _stop)
    try:
        # Imported within the bounds.
        from mooring.simulation.what_if.answers import answer

        result: object = answer(*pickle.loads(payload))
    except InvalidInput as problem:
        result = Problem(problem.code, problem.message)
    except MemoryError:
        megabytes = bounds.memory_bytes >> 20
        result = Problem("what-if-too-large", f"the answer needs more than {megabytes:,} MiB of memory; {_ADVICE}")
    except _CpuTimeUsed:
        result = Problem(
            "what-if-too-large", f"the answer needs more than {bounds.cpu_seconds} s of CPU time; {_ADVICE}"
        )
    sys.stdout.buffer.write(pickle.dumps(result))


_ADVICE = "ask about a shorter time, or use mooring simulate --from-server"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _CpuTimeUsed
