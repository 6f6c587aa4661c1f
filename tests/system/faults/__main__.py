"""`python -m tests.system.faults --seconds 600 --seed 7`: a run under faults; without a seed a new one is drawn."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.system.faults.run import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults happen")
    parser.add_argument("--seed", type=int, default=None, help="what load and faults follow from")
    parser.add_argument("--logs", type=Path, default=None, help="a folder for the logs of all parts")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    _say(f"seed {seed}")
    report = run(seed, options.seconds, _say, options.logs)
    for line in report.lines():
        _say(line)
    return min(len(report.violations), 1)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
