"""Run benchmarks by name (default: all): a table for people, one JSON object for machines."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks import targets

NAMES = (
    "placement",
    "scalability",
    "startup",
    "command_line",
    "submission",
    "pending",
    "binding",
    "admission",
    "accounting",
    "measures",
    "service",
    "takeover",
    "overload",
    "fairness",
    "long_polls",
    "bookings",
    "booking_series",
    "backfill",
    "week",
    "estimates",
    "waiting",
    "scaling",
    "packing",
    "console",
    "defragmentation",
)
ON_REQUEST = ("peers",)
"""Not part of all: they build or install other programs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join((*NAMES, *ON_REQUEST))}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=1, help="Runs of each benchmark; print their medians (default 1).")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - {*NAMES, *ON_REQUEST})
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join((*NAMES, *ON_REQUEST))}")
    if arguments.runs < 1:
        parser.error("--runs must be at least 1")
    names: Sequence[str] = arguments.names or NAMES
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    # Benchmarks take turns, so that a busy phase of the machine affects all of them.
    for _ in range(arguments.runs):
        for name in names:
            if not arguments.json:
                print(f"{name} …", file=sys.stderr, flush=True)
            runs[name].append(importlib.import_module(f"benchmarks.{name}").run())
    results = {name: _medians(each) for name, each in runs.items()}
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    notes = {name: _notes(name, figures) for name, figures in results.items()}
    if arguments.json:
        print(json.dumps({"machine": machine, "results": results, "notes": notes}, indent=2))
        return 0
    width = max((len(figure) for figures in results.values() for figure in figures), default=0)
    for name, figures in results.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            print(f"  {figure:<{width}}  {value:>12,.2f}")
        if notes[name]:
            print("", *notes[name], sep="\n")
    print("", *targets.table(results), sep="\n")
    return 0


def _notes(name: str, figures: dict[str, float]) -> list[str]:
    """Return the lines that a benchmark adds to its figures, such as a table of its own."""
    module = importlib.import_module(f"benchmarks.{name}")
    lines: list[str] = module.notes(figures) if hasattr(module, "notes") else []
    return lines


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {figure: median(run[figure] for run in runs if figure in run) for figure in runs[0]}


if __name__ == "__main__":
    sys.exit(main())
