"""Run by path as `python -I -S <this file> SPEC`: start one process as a task would be, and print why that fails.

It prints nothing on success. At its start the agent uses it to find the isolation that the machine permits.
"""

# ruff: noqa: PTH100, PTH118, PTH120, T201
from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 5)))

from mooring.agent.runtimes.process.supervisor import child, privileges


def main(text: str) -> None:
    task = json.loads(text)
    privileges.become_subreaper()
    try:
        started = child.start(task, task["containers"][0])
    except child.StartFailed as failure:
        print(failure.reason)
        return
    waited_for = started.init.pid if started.init is not None else started.pid
    _, status = os.waitpid(waited_for, 0)
    if started.init is not None:
        reported = started.init.exit_status()
        status = status if reported is None else reported
    if status != 0:
        print(f"the probe ended with wait status {status}")


if __name__ == "__main__":
    main(sys.argv[1])
