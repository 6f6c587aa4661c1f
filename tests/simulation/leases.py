"""The one seat, given by a service that keeps its own time: who is cut off from it, or frozen, loses it to another."""

from __future__ import annotations

import asyncio
from random import Random

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Seat
from tests.simulation.loop import Process

TTL_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_LONGEST_WAY_SECONDS = 0.05


class Seats:
    """Whose the seat is, and until when."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._holder: Process | None = None
        self._until = 0.0
        self.cut_off: set[str] = set()
        """Names of the processes that do not reach it."""

    def forget(self) -> None:
        """As when it is set up anew: two may believe then that the seat is theirs."""
        self._holder = None

    async def take(self, process: Process) -> bool:
        """Have it for a time, if it is free, over or one's own."""
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
        await asyncio.sleep(self._random.uniform(0, _LONGEST_WAY_SECONDS))
        if process.name in self.cut_off:
            raise ConnectionError("simulated: cut off from the seat")


class SimulatedElection:
    standbys = True

    def __init__(self, seats: Seats, process: Process) -> None:
        self._seats = seats
        self._process = process

    async def campaign(self) -> Seat:
        while True:
            asked_at = monotonic()
            try:
                if await self._seats.take(self._process):
                    return Seat(
                        Claim("simulated"),
                        ttl=TTL_SECONDS,
                        renew=self._renew,
                        release=self._release,
                        asked_at=asked_at,
                    )
            except ConnectionError:
                pass
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        return None

    async def _renew(self) -> bool:
        return await self._seats.renew(self._process)

    async def _release(self) -> None:
        await self._seats.release(self._process)
