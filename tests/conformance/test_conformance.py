from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.running import cases_in, problem_of
from tests.conformance.translation import Json

CASES = cases_in(Path(__file__).parent / "cases")
RAN: Counter[str] = Counter()


@pytest.mark.parametrize(
    ("file", "case"), [pytest.param(file, case, id=case["id"]) for file, cases in CASES.items() for case in cases]
)
def test_the_core_decides_as_kubernetes_does(file: str, case: Json) -> None:
    RAN[file] += 1
    problem = problem_of(case)
    assert problem is None, f"{case['title']}: {problem}"


def test_every_case_of_every_file_is_run(
    record_property: Callable[[str, object], None], request: pytest.FixtureRequest
) -> None:
    """Reports how many cases of each file were run; a file that is not found would go unnoticed otherwise."""
    counts = {file: len(cases) for file, cases in CASES.items()}
    for file, count in counts.items():
        record_property(file, count)
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("\nconformance: " + ", ".join(f"{file} {count}" for file, count in sorted(RAN.items())))
    assert len(counts) == 17
    assert sum(counts.values()) == 397
    assert not RAN or RAN.total() <= sum(counts.values())
