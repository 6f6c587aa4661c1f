"""`python -m tests.conformance FOLDER`: how many cases of each file pass, and which do not."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from tests.conformance.running import cases_in, problem_of
from tests.conformance.translation import Json
from tests.external import external_folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = external_folder("MOORING_CONFORMANCE", "conformance")
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    folder = parser.parse_args().folder
    found = cases_in(folder)
    if not found:
        parser.error(f"there are no cases in {folder}; name a folder, or set MOORING_CONFORMANCE to one")
    failures = 0
    for name, cases in found.items():
        problems = {case["id"]: problem for case in cases if (problem := _attempt(case)) is not None}
        _say(f"{name}: {len(cases) - len(problems)} passed, {len(problems)} failed")
        for case_id, problem in problems.items():
            _say(f"  {case_id}: {problem}")
        failures += len(problems)
    return min(failures, 1)


def _attempt(case: Json) -> str | None:
    try:
        return problem_of(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
