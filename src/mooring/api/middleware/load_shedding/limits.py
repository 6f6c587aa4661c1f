"""The limits of load shedding, and how the settings fill them."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import structlog

from mooring.settings import Settings

RESERVED_FILES = 256
"""Descriptors that are left to the database, agents' files and so on."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Rates are per second, with twice as much at once; streams and channels are counted while they are open."""

    seats: int = 6
    """Requests in progress of users with a verified credential."""
    operator_seats: int = 2
    """More of them, for reads of admins."""
    writer_seats: int = 64
    """Submissions that are checked and only wait for their transaction, which they share with the others."""
    unverified_seats: int = 2
    """Requests in progress without a verified credential."""
    lookup_seats: int = 2
    """Look-ups of unknown keypairs in progress."""
    queue_length: int = 100
    """Queued requests of one flow."""
    queue_seconds: float = 10.0
    """Longest wait for a seat."""

    requests: float = 500.0
    queries: float = 10.0
    streams: int = 100
    channels: int = 100
    """Open connections into tasks: a page in a browser opens many at once."""
    address_requests: float = 100.0
    keypair_lookups: float = 10.0
    """Look-ups of one access key from one address that is not known yet; a known keypair needs none."""
    admin_factor: float = 10.0
    """Multiplies the rates and counts of an admin."""

    body_bytes: int = 64 * 2**20
    """Buffered for requests with a verified credential."""
    unverified_body_bytes: int = 2 * 2**20
    """Buffered for the others."""
    body_seconds: float = 20.0
    """For a body to arrive, plus a second for every 64 KiB of it."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    total: int = 4096
    per_address: int = 256
    """Without a verified credential."""
    per_user: int = 512
    header_seconds: float = 10.0
    """From the first byte of a request, or the opening of the connection, to the end of the headers."""
    header_bytes: int = 32 * 1024
    header_count: int = 100
    pipelined: int = 8
    """Requests of one connection that wait for the response to an earlier one."""
    stalled_seconds: float = 30.0
    """A response of which the client reads nothing for this long is broken off."""
    agent_message_bytes: int = 16 * 2**20


def load_limits(settings: Settings) -> LoadLimits:
    return LoadLimits(
        seats=settings.requests_at_once,
        unverified_seats=settings.unverified_requests_at_once,
        queue_length=settings.queue_length,
        queue_seconds=settings.queue_seconds,
        requests=settings.request_rate,
        queries=settings.question_rate,
        streams=settings.stream_limit,
        address_requests=settings.address_rate,
        admin_factor=settings.admin_rate_factor,
        body_bytes=settings.body_memory_mb * 2**20,
        unverified_body_bytes=settings.unverified_body_memory_kb * 2**10,
        body_seconds=settings.body_seconds,
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    total = _possible(settings.connection_limit)
    if total < settings.connection_limit:
        _log.info(f"The limit on open files allows {total} connections, not {settings.connection_limit}")
    return ConnectionLimits(
        total=total,
        per_address=settings.address_connection_limit,
        per_user=settings.user_connection_limit,
        header_seconds=settings.header_seconds,
    )


def _possible(wanted: int) -> int:
    """Return the number of connections that the limit on open files allows.

    The limit itself stays: tasks that this machine's agent starts inherit it, and some programs break at a high one.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_FILES))
