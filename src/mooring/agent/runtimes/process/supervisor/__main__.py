"""Run by path as `python -I -S <this file> TASK_FOLDER LOCK_DESCRIPTOR`; the agent does so for every task."""

# ruff: noqa: PTH100, PTH118, PTH120
# No pathlib in the supervisor: loading it costs as much as the rest of the start-up.
from __future__ import annotations

import os
import sys

# Without site packages the folder that holds Mooring has to be named; `-I` keeps this file's own folder out.
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))

from mooring.agent.supervisor.main import main

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
