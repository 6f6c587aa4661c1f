from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.running import cases_in, problem_of
from tests.conformance.translation import Json
from tests.external import external_folder

FOLDER = external_folder("MOORING_CONFORMANCE", "conformance")
CASES = cases_in(FOLDER)
ABSENT = f"no conformance cases in {FOLDER}; set MOORING_CONFORMANCE to the folder that holds them"


@pytest.mark.skipif(not CASES, reason=ABSENT)
@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for cases in CASES.values() for case in cases])
def test_the_core_decides_as_kubernetes_does(case: Json) -> None:
    problem = problem_of(case)
    assert problem is None, f"{case['title']}: {problem}"


@pytest.mark.skipif(not CASES, reason=ABSENT)
def test_every_file_has_cases(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> None:
    """Reports how many cases of each file are run; a file that is not found would go unnoticed otherwise."""
    counts = {file: len(cases) for file, cases in CASES.items()}
    for file, count in counts.items():
        record_property(file, count)
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("\nconformance: " + ", ".join(f"{file} {count}" for file, count in sorted(counts.items())))
    assert all(counts.values())
