"""Schemas of operations: who leads, which servers are there, and what the leader's loops did."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mooring.wire.fields import Answer


class ServerView(Answer):
    name: str
    role: str
    """As it was started: `all`, `scheduler` or `api`."""
    standing: Literal["leader", "standby", "api", "silent"]
    """`silent`: it was not seen for half a minute, and did not say goodbye."""
    url: str
    version: str
    started_at: datetime
    last_seen_at: datetime


class ServerList(Answer):
    servers: list[ServerView]


class LeaderView(Answer):
    name: str | None
    """Who took office last; None where nobody ever did."""
    term: int
    since: datetime | None
    coordination: str | None
    """How it was chosen: `alone`, `database` or `etcd`."""
    url: str | None
    """Where it answers, as far as is known."""
    silent: bool
    """It is not on the list of servers any more, or was not seen for half a minute."""
    standbys: list[ServerView]
    """The servers that would take its place."""


class LoopView(Answer):
    name: str
    server: str
    term: int
    last_run_at: datetime | None
    duration_seconds: float | None
    outcome: Literal["ok", "failed"] | None
    error: str | None
    next_run_at: datetime | None
    """When the timer turns it, unless a signal does before."""
    runs: int
    """Since its leader took office, as the next two."""
    failures: int
    found_by_timer: int
    """Turns that found work which a signal should have announced."""


class LoopList(Answer):
    loops: list[LoopView]


class PassView(Answer):
    """What a pass over everything that waited came to, in workloads."""

    placed: int
    impossible: int
    waiting: int
    seconds: float
