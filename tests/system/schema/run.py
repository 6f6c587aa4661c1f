"""One run per role: requests made from a real server's description, for a set time, and the failures they cause."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import schemathesis
from schemathesis import hooks
from schemathesis.config import CacheConfig, HealthCheck, SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.generation.case import Case

from mooring.security import encryption
from tests.servers import PostgresServer
from tests.system.schema.world import World, prepare
from tests.system.servers import PASSWORD, Server, workspace

_CHECKS = ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
_FLAGS = ("--no-agent", "--simulate", "5")
"""No agent: made-up commands would run on this machine."""
_EXAMPLES = 10
"""Per operation and cycle; cycles repeat until the time is over."""
_ANSWER_SECONDS = 60.0
_STREAM_SECONDS = 1.0
_TEXT_CHARACTERS = 2000
_UNAVAILABLE = 503
_EXPECTED_CODES = frozenset(
    {"agent-outdated", "agent-unreachable", "logs-unavailable", "no-ready-task", "node-alive", "try-again"}
)
"""Codes of 503 responses that a healthy server without agents gives; any other is a problem, documented or not."""

Say = Callable[[str], None]


@dataclass
class Report:
    role: str
    seed: int
    database: str = "sqlite"
    servers: int = 0
    """Started one after the other: a server whose role's credential is revoked by its own requests is replaced."""
    statuses: Counter[int] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)
    """Documented 503 responses with an expected code, by code."""
    problems: dict[str, str] = field(default_factory=dict)
    """The first of each kind, with what is needed to repeat it."""
    logs: Path | None = None

    def lines(self) -> Iterator[str]:
        classes = Counter(f"{status // 100}xx" for status in self.statuses.elements())
        counts = f"{self.statuses.total()} requests, seed {self.seed}, {self.servers} servers"
        yield f"{self.role} on {self.database}: {counts}"
        yield f"  {_listed(classes)} ({_listed(self.statuses)})"
        if self.unavailable:
            yield f"  expected 503: {_listed(self.unavailable)}"
        for kind, text in self.problems.items():
            yield f"  PROBLEM {kind}\n{text}"
        yield f"  problems: {len(self.problems)}"
        if self.logs is not None:
            yield f"  logs: {self.logs}"


def run(role: str, seconds: float, seed: int, say: Say, *, postgres: PostgresServer | None = None) -> Report:
    """Send requests as this role for that long, and at least one; keep the servers' logs after a problem.

    Every server has a database of its own: in SQLite, or in PostgreSQL where one is given.
    """
    report = Report(role, seed, "sqlite" if postgres is None else "postgresql")
    left = seconds
    with workspace() as folder:
        while left >= 1 or not report.statuses:
            report.servers += 1
            data = folder / f"server-{report.servers}"
            say(f"{role}: server {report.servers}, {left:.0f} seconds left")
            database = () if postgres is None else ("--demo", "--database", postgres.url(postgres.create_database()))
            sealing_keys = folder / "sealing-keys"
            encryption.ensure(sealing_keys)
            environment = {"MOORING_ADMIN_PASSWORD": PASSWORD, "MOORING_SEALING_KEYS_FILE": str(sealing_keys)}
            server = Server(data, (*_FLAGS, *database), environment)
            left -= _run_server(server, report, left)
        if report.problems:
            report.logs = Path(tempfile.mkdtemp(prefix=f"mooring-schema-{role}-"))
            for log in folder.glob("*.err.txt"):
                (report.logs / log.name).write_bytes(log.read_bytes())
    return report


def _run_server(server: Server, report: Report, seconds: float) -> float:
    """Return the seconds that requests were sent for: the start of a slow machine's server is none of them."""
    try:
        world = prepare(server.start())
        began = time.monotonic()
        with _hooked(Requests(world, report)) as requests:
            _send_requests(server, requests, seconds)
        took = time.monotonic() - began
        if not server.alive:
            report.problems.setdefault("the server ended", server.log[-_TEXT_CHARACTERS:])
        else:
            _check_books(server, world, report)
    finally:
        if server.alive:
            server.stop()
    if (at := server.log.find("Traceback")) >= 0:
        report.problems.setdefault("traceback", server.log[max(0, at - 500) : at + _TEXT_CHARACTERS])
    return took


class Requests:
    """Changes each request before it is sent, so that it gets further than made-up names do, and counts responses."""

    def __init__(self, world: World, report: Report) -> None:
        self.world = world
        self.report = report
        self.refused = False
        """True if a response says that the credential is not valid."""
        self._random = random.Random(f"{report.seed}/{report.servers}")

    @property
    def headers(self) -> dict[str, str]:
        return self.world.credentials[self.report.role]

    def before_call(self, _context: hooks.HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
        if case.path_parameters and self._random.random() < 0.5:
            case.path_parameters = {name: self.world.path_parameter(case.path, name) for name in case.path_parameters}
        if case.query:
            case.query = self._with_existing(case.query)
        if isinstance(case.body, dict):
            case.body = self._with_existing(case.body)
        # A request that only waits costs its time and finds nothing.
        if case.path.endswith("/wait"):
            case.query = {**(case.query or {}), "timeout": 0}
        if case.path.endswith("/logs"):
            case.query = {**(case.query or {}), "follow": False}
        if case.path.endswith("/stream"):
            kwargs["timeout"] = _STREAM_SECONDS

    def after_call(self, _context: hooks.HookContext, case: Case[Any], response: Response) -> None:
        status = response.status_code
        self.report.statuses[status] += 1
        self.refused = self.refused or status == 401
        documented = str(status) in case.operation.responses.status_codes
        if status == _UNAVAILABLE and documented and (code := _code(response.content)) in _EXPECTED_CODES:
            self.report.unavailable[code] += 1
        elif status >= 500:
            kind = f"{status} {case.method} {case.path}"
            self.report.problems.setdefault(kind, f"{response.text[:_TEXT_CHARACTERS]}\n{_curl(case)}")

    def credential_is_valid(self, server: Server) -> bool:
        """Ask only after a refusal: many refusals are none of the credential itself."""
        if not self.refused or self.report.role in ("node", "nobody"):
            return True
        self.refused = False
        return _get(server, "/api/auth/me", self.headers).status_code != 401

    def _with_existing(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = self.world.body_fields
        return {
            name: known[name] if name in known and self._random.random() < 0.5 else value
            for name, value in given.items()
        }


@contextmanager
def _hooked(requests: Requests) -> Iterator[Requests]:
    # Bound methods are created at each access, and are unregistered by identity.
    before, after = requests.before_call, requests.after_call
    hooks.GLOBAL_HOOK_DISPATCHER.register_hook_with_name(before, "before_call")
    hooks.GLOBAL_HOOK_DISPATCHER.register_hook_with_name(after, "after_call")
    try:
        yield requests
    finally:
        hooks.GLOBAL_HOOK_DISPATCHER.unregister(before)
        hooks.GLOBAL_HOOK_DISPATCHER.unregister(after)


def _send_requests(server: Server, requests: Requests, seconds: float) -> None:
    report = requests.report
    config = SchemathesisConfig(
        seed=report.seed + report.servers,
        max_time=max(1, round(seconds)),
        suppress_health_check=[HealthCheck.all],
        cache=CacheConfig(enabled=False),
    )
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config, timeout=_ANSWER_SECONDS)
    schema.config.update(headers=requests.headers, continue_on_failure=True, request_timeout=_ANSWER_SECONDS)
    schema.config.generation.update(
        max_examples=_EXAMPLES, no_shrink=True, database="none", with_security_parameters=False
    )
    schema.config.checks.update(included_check_names=_CHECKS)
    stream = from_schema(schema).execute()
    for event in stream:
        if isinstance(event, events.ScenarioFinished):
            _note_failures(event, report)
            if not server.alive or not requests.credential_is_valid(server):
                stream.stop()
        elif isinstance(event, events.NonFatalError):
            report.problems.setdefault(f"{event.label}: {event.info.title}", str(event.info)[:_TEXT_CHARACTERS])
        elif isinstance(event, events.FatalError):
            raise event.exception


def _note_failures(event: events.ScenarioFinished, report: Report) -> None:
    for nodes in event.recorder.checks.values():
        for node in nodes:
            if (found := node.failure_info) is not None:
                kind = f"{found.failure.title}: {found.failure.operation}"
                text = f"{found.failure.message}\n{found.code_sample}"
                report.problems.setdefault(kind, text[:_TEXT_CHARACTERS])


def _check_books(server: Server, world: World, report: Report) -> None:
    """An audit by the admin, unless its own requests have taken its credential."""
    answer = _get(server, "/api/audit", world.credentials["admin"])
    if answer.status_code == 200 and (findings := answer.json()["findings"]):
        report.problems.setdefault("the books disagree", json.dumps(findings)[:_TEXT_CHARACTERS])


def _get(server: Server, path: str, headers: dict[str, str]) -> httpx2.Response:
    return httpx2.get(f"{server.url}{path}", headers=headers, timeout=_ANSWER_SECONDS)


def _curl(case: Case[Any]) -> str:
    try:
        return case.as_curl_command()[:_TEXT_CHARACTERS]
    except (ValueError, UnicodeError) as error:
        return f"{case!r}: {error}"[:_TEXT_CHARACTERS]


def _code(content: bytes) -> str:
    try:
        return str(json.loads(content)["code"])
    except (ValueError, KeyError, TypeError):
        return "no code"


def _listed(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{key} {counts[key]}" for key in sorted(counts, key=str))
