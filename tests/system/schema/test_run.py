"""A short run as two roles, and the responses that count as problems; `make schema SECONDS=600` is a long run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.system.schema.run import Report, Requests, run
from tests.system.schema.world import World

SEED, SECONDS = 7, 10.0


@pytest.mark.slow
@pytest.mark.parametrize(("role", "database"), [("admin", "sqlite"), ("admin", "postgresql"), ("nobody", "sqlite")])
def test_no_request_of_a_role_makes_a_real_server_fail(
    role: str, database: str, request: pytest.FixtureRequest
) -> None:
    postgres = request.getfixturevalue("postgres_server") if database == "postgresql" else None
    report = run(role, SECONDS, SEED, lambda _line: None, postgres=postgres)
    assert not report.problems, "\n".join(report.lines())
    assert report.statuses


@pytest.mark.parametrize(
    ("status", "code", "documented", "is_problem"),
    [
        (404, "not-found", ["200"], False),
        (500, "internal-error", ["200", "500"], True),
        (502, "no-ready-task", ["200", "503"], True),
        (503, "no-ready-task", ["200", "503"], False),
        (503, "no-ready-task", ["200"], True),
        (503, "unavailable", ["200", "503"], True),
    ],
)
def test_a_server_error_is_a_problem_unless_it_is_a_documented_503_with_an_expected_code(
    status: int, code: str, documented: list[str], is_problem: bool
) -> None:
    report = Report("user", SEED)
    Requests(World(), report).after_call(cast(Any, None), _case(documented), _response(status, code))
    assert bool(report.problems) is is_problem
    assert report.statuses == {status: 1}


def _case(documented: list[str]) -> Any:
    responses = SimpleNamespace(status_codes=documented)
    operation = SimpleNamespace(responses=responses)
    return SimpleNamespace(
        method="GET", path="/api/nodes", operation=operation, as_curl_command=lambda: "curl http://127.0.0.1/api/nodes"
    )


def _response(status: int, code: str) -> Any:
    body = json.dumps({"code": code, "message": "", "details": {}})
    return SimpleNamespace(status_code=status, content=body.encode(), text=body)
