"""The load shedding of one API process: flows, their priority levels, rates and bytes."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from mooring.api.middleware.load_shedding.byte_budget import ByteBudget, Reservation
from mooring.api.middleware.load_shedding.fair_queue import FairQueue
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.rates import Rates
from mooring.model.tenancy.tenants import Principal

_REMEMBERED_SECONDS = 60.0
_MAX_CREDENTIALS = 10_000
_MAX_OPERATORS = 1_000
_REFUSALS_PER_SECOND = 50.0
_MAX_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Flow:
    """Requests that queue behind each other: those of one user, or without a verified credential of one address."""

    key: str
    user_id: UUID | None = None
    """None: not verified."""


class LoadShedding:
    """Decides for every request whether it begins, queues or is refused; a refusal hits the flow that causes it."""

    def __init__(self, limits: LoadLimits | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits or LoadLimits()
        self._clock = clock
        self.rates = Rates(self.limits, clock=clock)
        self.credentials = KnownCredentials(clock)
        self._users = self._level(self.limits.seats)
        self._operators = self._level(self.limits.operator_seats)
        self.writers = self._level(self.limits.writer_seats)
        self._unverified = self._level(self.limits.unverified_seats)
        self.keypair_lookups = self._level(self.limits.lookup_seats)
        self._bodies = ByteBudget(self.limits.body_bytes)
        self._unverified_bodies = ByteBudget(self.limits.unverified_body_bytes)
        self._admins: OrderedDict[UUID, None] = OrderedDict()
        """The one seen last comes last."""
        self._next_refusal: OrderedDict[str, float] = OrderedDict()

    def charge(self, flow: Flow, cost: float = 1.0) -> None:
        """Take a request from the flow's rate, or raise TooManyAttempts."""
        if flow.user_id is None:
            self.rates.address(flow.key, cost)
        else:
            self.rates.user(flow.user_id, is_admin=flow.user_id in self._admins, cost=cost)

    def level(self, flow: Flow, *, reads: bool) -> FairQueue:
        """The priority level of a request: reads of admins have seats of their own where users' seats are taken."""
        if flow.user_id is None:
            return self._unverified
        if reads and flow.user_id in self._admins and not self._users.has_free_seat:
            return self._operators
        return self._users

    def reservation(self, flow: Flow) -> Reservation:
        """For the bytes that are buffered for a request."""
        budget = self._unverified_bodies if flow.user_id is None else self._bodies
        return budget.reservation(flow.key)

    def seen(self, principal: Principal) -> None:
        """Remember who is an admin, since the flow of a request does not tell."""
        self._admins.pop(principal.user_id, None)
        if principal.is_admin:
            self._admins[principal.user_id] = None
            if len(self._admins) > _MAX_OPERATORS:
                self._admins.popitem(last=False)

    async def pace_refusal(self, flow: Flow) -> None:
        """Delay a refusal so that one flow gets a limited number per second.

        A client that ignores Retry-After and asks again at once would otherwise keep the process busy with refusing.
        """
        now = self._clock()
        due = min(max(self._next_refusal.pop(flow.key, now), now), now + _MAX_PAUSE_SECONDS)
        self._next_refusal[flow.key] = due + 1 / _REFUSALS_PER_SECOND
        if len(self._next_refusal) > _MAX_CREDENTIALS:
            self._next_refusal.popitem(last=False)
        if due > now:
            await asyncio.sleep(due - now)

    def _level(self, seats: int) -> FairQueue:
        limits = self.limits
        return FairQueue(seats, queue_length=limits.queue_length, wait_seconds=limits.queue_seconds, clock=self._clock)


class KnownCredentials:
    """Credentials that were verified, or found wrong, a short while ago.

    This decides which flow a request belongs to, never what it may do: every request is authenticated by itself.
    Keyed by a hash with a random key, so that nobody can choose an entry and no credential is kept.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._owners: OrderedDict[int, tuple[UUID | None, float]] = OrderedDict()

    def known(self, authorization: bytes) -> bool:
        found = self._owners.get(hash(authorization))
        return found is not None and found[1] > self._clock()

    def owner(self, authorization: bytes) -> UUID | None:
        """The user of a known credential; None for one that is wrong or not known."""
        found = self._owners.get(hash(authorization))
        return found[0] if found is not None and found[1] > self._clock() else None

    def remember(self, authorization: bytes, user_id: UUID | None) -> None:
        """None: the credential is wrong, ended or revoked."""
        key = hash(authorization)
        # The entry used last comes last: a credential in use is never the one that is forgotten.
        self._owners.pop(key, None)
        self._owners[key] = (user_id, self._clock() + _REMEMBERED_SECONDS)
        if len(self._owners) > _MAX_CREDENTIALS:
            self._owners.popitem(last=False)
