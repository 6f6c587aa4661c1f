"""The leadership lease as a key in etcd: the candidate that creates the key holds it until the key's lease ends."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Lease
from mooring.coordination.etcd import etcd_pb2 as pb
from mooring.coordination.etcd.client import EtcdClient, EtcdError
from mooring.coordination.outage import Outage

_AGAIN_SECONDS = 0.5
KEY = b"/mooring/leader"


@dataclass(frozen=True, slots=True)
class LeaderKey:
    """The leader key as this candidate created it."""

    client: EtcdClient
    key: bytes
    lease: int
    claim: Claim
    asked_at: float

    async def renew(self) -> bool:
        """Renew the lease. Return False if it has expired, or no longer holds the key.

        A restored etcd may have the lease without the key, which another candidate can then create.
        """
        if await self.client.keep_alive(self.lease) <= 0:
            return False
        found = (await self.client.get(self.key)).kvs
        return bool(found) and found[0].lease == self.lease

    async def release(self, _reason: str = "") -> None:
        await self.client.revoke(self.lease)


class EtcdElection:
    standbys = True

    def __init__(self, client: EtcdClient, candidate: str, ttl: float, *, key: bytes = KEY) -> None:
        self._client = client
        self._candidate = candidate.encode()
        self.ttl = max(1, round(ttl))
        self._key = key
        self._outage = Outage("etcd", "this server cannot campaign for leadership")

    @property
    def outage(self) -> Outage | None:
        return None if self._outage.since is None else self._outage

    async def campaign(self) -> Lease:
        return self.lease(await self.win())

    def lease(self, key: LeaderKey) -> Lease:
        return Lease(key.claim, ttl=self.ttl, renew=key.renew, release=key.release, asked_at=key.asked_at)

    async def win(self) -> LeaderKey:
        """Wait until this candidate holds the key, and return it."""
        while True:
            try:
                if (key := await self.claim()) is not None:
                    return key
                await self._until_free()
            except EtcdError as error:
                self._outage.failed(error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def claim(self) -> LeaderKey | None:
        """Create the key, or return None if another candidate holds it. Raise EtcdError if etcd does not answer."""
        asked_at = monotonic()
        lease = await self._client.grant(self.ttl)
        answer = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=self._key, create_revision=0)
                ],
                success=[pb.RequestOp(request_put=pb.PutRequest(key=self._key, value=self._candidate, lease=lease))],
            )
        )
        self._outage.over()
        if answer.succeeded:
            claim = Claim("etcd", f"{answer.header.cluster_id:x}", answer.header.revision)
            return LeaderKey(self._client, self._key, lease, claim, asked_at)
        await self._client.revoke(lease)
        return None

    async def answers(self) -> bool:
        try:
            await self._client.get(self._key)
        except EtcdError as error:
            self._outage.failed(error)
            return False
        self._outage.over()
        return True

    async def close(self) -> None:
        await self._client.close()

    async def _until_free(self) -> None:
        async with aclosing(self._client.observe(self._key)) as values:
            async for value in values:
                self._outage.over()
                if value is None:
                    return
