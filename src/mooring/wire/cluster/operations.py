"""Schemas of operations: the leader, the servers, and the leader's control loops."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mooring.wire.fields import Answer


class ServerView(Answer):
    name: str
    role: str
    """The role it was started with: `all`, `scheduler` or `api`."""
    standing: Literal["leader", "standby", "api", "silent"]
    """`silent`: not seen for half a minute, without a regular shutdown."""
    url: str
    version: str
    started_at: datetime
    last_seen_at: datetime
    election: str | None = None
    """Its kind of election: `alone`, `database` or `etcd`; None if it never leads."""
    problem: str | None = None
    """The reason why it cannot campaign for leadership now."""
    problem_since: datetime | None = None


class ServerList(Answer):
    servers: list[ServerView]
    vacant_since: datetime | None = None
    vacant_reason: str | None = None
    """The reason why there is no leader; None while there is one."""


class LeaderView(Answer):
    name: str | None
    """The last server that became leader; None if none ever did."""
    term: int
    since: datetime | None
    coordination: str | None
    """The kind of election: `alone`, `database` or `etcd`."""
    url: str | None
    """Its address, if known."""
    silent: bool
    """It is no longer a known server, or was not seen for half a minute."""
    standbys: list[ServerView]
    """The standby servers."""
    vacant: bool = False
    """There is no leader now: `name` is the last one, and nothing is scheduled."""
    vacant_since: datetime | None = None
    vacant_reason: str | None = None


class LoopView(Answer):
    name: str
    server: str
    term: int
    last_run_at: datetime | None
    duration_seconds: float | None
    outcome: Literal["ok", "failed"] | None
    error: str | None
    next_run_at: datetime | None
    """The next iteration by timer, unless a signal comes first."""
    runs: int
    """Counted since its leader was elected, like the next two."""
    failures: int
    found_by_timer: int
    """Iterations that found work without the signal that should have announced it."""


class BackgroundTaskView(Answer):
    """A task that runs as long as its server, and is restarted whenever it ends."""

    server: str
    name: str
    status: Literal["running", "restarting", "failing"]
    """`failing`: it has failed several times in a row."""
    started_at: datetime | None
    failures: int
    """Since its server started."""
    error: str | None
    """The last failure."""
    failed_at: datetime | None


class StartErrors(Answer):
    """The distance between the first planned or estimated start of workloads and their placement."""

    workloads: int
    """The number of workloads that had a predicted start and were placed in the last seven days; at most 1,000."""
    late: int
    """Workloads that were placed more than a minute after it."""
    moved: int
    """Workloads whose predicted start had been replaced by a later one."""
    median_seconds: float
    p90_seconds: float


class LoopList(Answer):
    loops: list[LoopView]
    start_errors: StartErrors | None = None
    """None: no predicted start has been compared yet."""
    background: list[BackgroundTaskView] = []
    """The background tasks of all servers, as they reported some seconds ago at most."""


class PassView(Answer):
    """The result of a pass over all pending workloads, in workloads."""

    placed: int
    impossible: int
    waiting: int
    seconds: float
