"""Run benchmarks by name (default: all): a table for people, one JSON object for machines."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys

NAMES = (
    "placement",
    "growth",
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
    "estimates",
    "waiting",
    "scaling",
    "packing",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    results: dict[str, dict[str, float]] = {}
    for name in arguments.names or NAMES:
        if not arguments.json:
            print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = importlib.import_module(f"benchmarks.{name}").run()
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    if arguments.json:
        print(json.dumps({"machine": machine, "results": results}, indent=2))
        return 0
    width = max(len(figure) for figures in results.values() for figure in figures)
    for name, figures in results.items():
        print(f"\n{name}")
        for figure, value in figures.items():
            print(f"  {figure:<{width}}  {value:>12,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
