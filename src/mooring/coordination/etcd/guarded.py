"""Election through etcd, guarded by the lease in the database.

etcd chooses the candidate, and the candidate leads once it also holds the database's lease. There is one leader
whatever happens to etcd's data: after a wipe, a restore or an accidental second cluster, etcd may choose two
candidates, but only one of them holds the lease. The lease also shows every server in the database whether one leads.

With `fallback_seconds`, a candidate that has not reached etcd for that long campaigns for the database's lease alone. A
leader elected that way claims etcd's key as soon as etcd answers again, and resigns if another candidate holds it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mooring.clock import monotonic
from mooring.coordination.election import RENEWALS, Claim, Lease
from mooring.coordination.etcd.client import EtcdError
from mooring.coordination.etcd.election import EtcdElection, LeaderKey
from mooring.coordination.lease import POLL_SECONDS, LeaseRow
from mooring.coordination.outage import Outage

_FALLBACK = Claim("database")


class GuardedElection:
    standbys = True

    def __init__(self, etcd: EtcdElection, row: LeaseRow, *, fallback_seconds: float | None = None) -> None:
        self._etcd = etcd
        self._row = row
        self._fallback_seconds = fallback_seconds
        self._outage = Outage("The database", "this server cannot campaign for leadership")

    @property
    def outage(self) -> Outage | None:
        if self._outage.since is not None:
            return self._outage
        return self._etcd.outage

    async def campaign(self) -> Lease:
        while True:
            key = await self._chosen()
            try:
                lease = await self._take_lease(key)
            except BaseException:
                await _release(key)
                raise
            if lease is not None:
                return lease
            await _release(key)

    async def close(self) -> None:
        await self._etcd.close()

    async def _chosen(self) -> LeaderKey | None:
        """Return the key once this candidate holds it, or None once the outage of etcd exceeds the fallback time."""
        winning = asyncio.create_task(self._etcd.win())
        try:
            while not winning.done():
                if self._falls_back():
                    return None
                await asyncio.wait({winning}, timeout=POLL_SECONDS)
            return winning.result()
        finally:
            if not winning.done():
                winning.cancel()
                won = await asyncio.gather(winning, return_exceptions=True)
                if isinstance(won[0], LeaderKey):
                    await _release(won[0])

    def _falls_back(self) -> bool:
        outage = self._etcd.outage
        return self._fallback_seconds is not None and outage is not None and outage.seconds >= self._fallback_seconds

    async def _take_lease(self, key: LeaderKey | None) -> Lease | None:
        """Return the lease; None if the key is lost first, or if etcd answers a candidate without a key."""
        vote = None if key is None else self._etcd.lease(key)
        keeping = None if vote is None else asyncio.create_task(vote.until_lost())
        try:
            while vote is None or vote.safe:
                if key is None and await self._etcd.answers():
                    return None
                asked_at = monotonic()
                try:
                    taken = await self._row.take()
                except Exception as error:
                    self._outage.failed(error)
                else:
                    self._outage.over()
                    if taken:
                        return self._lease(key, asked_at if vote is None else min(asked_at, vote.renewed_at))
                await asyncio.sleep(POLL_SECONDS)
            return None
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)

    def _lease(self, key: LeaderKey | None, asked_at: float) -> Lease:
        held = key

        async def renew() -> bool:
            nonlocal held
            if held is not None:
                return all(await asyncio.gather(self._row.renew(), held.renew()))
            if not await self._row.renew():
                return False
            try:
                async with asyncio.timeout(self._row.ttl / RENEWALS / 2):
                    held = await self._etcd.claim()
            except (EtcdError, TimeoutError):
                # etcd is still unavailable: the database's lease alone decides.
                return True
            return held is not None

        async def release(reason: str) -> None:
            # The lease first, so that it is free for the next holder of the key.
            await self._row.release(reason)
            await _release(held)

        return Lease(
            _FALLBACK if key is None else key.claim,
            ttl=min(self._row.ttl, self._etcd.ttl),
            renew=renew,
            release=release,
            asked_at=asked_at,
        )


async def _release(key: LeaderKey | None) -> None:
    if key is not None:
        with suppress(EtcdError):
            await key.release()
