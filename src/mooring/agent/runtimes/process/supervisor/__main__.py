"""Run by path as `python -I -S <this file> TASK_FOLDER LOCK_DESCRIPTOR RESERVATIONS`, by the agent for every task."""

# ruff: noqa: PTH100, PTH118, PTH120
# No pathlib in the supervisor: importing it takes as long as the rest of the start.
from __future__ import annotations

import os
import sys

# Without site packages the parent folder of Mooring has to be added; `-I` excludes this file's folder.
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 5)))

from mooring.agent.runtimes.process.supervisor.main import main

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
