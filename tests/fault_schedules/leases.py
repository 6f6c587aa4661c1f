"""The lease, granted by a service with its own clock. A process that is frozen or cut off loses it to another."""

from __future__ import annotations

import asyncio
from random import Random

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Lease
from tests.fault_schedules.loop import Process

TTL_SECONDS = 2.0
_POLL_SECONDS = 0.5
_MAX_LATENCY_SECONDS = 0.05


class Leases:
    """The holder of the lease and its expiry."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._holder: Process | None = None
        self._until = 0.0
        self.cut_off: set[str] = set()
        """Names of the processes that cannot reach it."""

    def forget(self) -> None:
        """Forget the holder, as a recreated service does. Two processes may then believe that they hold the lease."""
        self._holder = None

    async def take(self, process: Process) -> bool:
        """Acquire or renew the lease if it is free, expired or already held by the caller."""
        await self._way(process)
        if self._holder is not process and self._holder is not None and monotonic() < self._until:
            return False
        self._holder, self._until = process, monotonic() + TTL_SECONDS
        await self._way(process)
        return True

    async def renew(self, process: Process) -> bool:
        await self._way(process)
        if self._holder is not process:
            return False
        self._until = monotonic() + TTL_SECONDS
        await self._way(process)
        return True

    async def release(self, process: Process) -> None:
        await self._way(process)
        if self._holder is process:
            self._holder = None

    async def _way(self, process: Process) -> None:
        await asyncio.sleep(self._random.uniform(0, _MAX_LATENCY_SECONDS))
        if process.name in self.cut_off:
            raise ConnectionError("simulated: cut off from the lease")


class SimulatedElection:
    standbys = True
    outage = None

    def __init__(self, leases: Leases, process: Process) -> None:
        self._leases = leases
        self._process = process

    async def campaign(self) -> Lease:
        while True:
            asked_at = monotonic()
            try:
                if await self._leases.take(self._process):
                    return Lease(
                        Claim("simulated"),
                        ttl=TTL_SECONDS,
                        renew=self._renew,
                        release=self._release,
                        asked_at=asked_at,
                    )
            except ConnectionError:
                pass
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        return None

    async def _renew(self) -> bool:
        return await self._leases.renew(self._process)

    async def _release(self, _reason: str) -> None:
        await self._leases.release(self._process)
