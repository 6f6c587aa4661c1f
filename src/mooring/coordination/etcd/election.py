"""The seat as a key in etcd under a lease: whoever put it there first has it until the lease ends."""

from __future__ import annotations

import asyncio

import structlog

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Seat
from mooring.coordination.etcd import etcd_pb2 as pb
from mooring.coordination.etcd.client import Compacted, EtcdClient, EtcdError

_log = structlog.get_logger(__name__)
_AGAIN_SECONDS = 0.5
KEY = b"/mooring/leader"


class EtcdElection:
    standbys = True

    def __init__(self, client: EtcdClient, candidate: str, ttl: float, *, key: bytes = KEY) -> None:
        self._client = client
        self._candidate = candidate.encode()
        self._ttl = max(1, round(ttl))
        self._key = key

    async def campaign(self) -> Seat:
        while True:
            try:
                seat = await self._try()
                if seat is not None:
                    return seat
            except (EtcdError, Compacted) as error:
                _log.warning("Cannot campaign for leadership", error=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)

    async def close(self) -> None:
        await self._client.close()

    async def _try(self) -> Seat | None:
        """The seat, or None after it became free."""
        asked_at = monotonic()
        lease = await self._client.grant(self._ttl)
        answer = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.CREATE, key=self._key, create_revision=0)
                ],
                success=[pb.RequestOp(request_put=pb.PutRequest(key=self._key, value=self._candidate, lease=lease))],
                failure=[pb.RequestOp(request_range=pb.RangeRequest(key=self._key))],
            )
        )
        header = answer.header
        if answer.succeeded:
            claim = Claim("etcd", f"{header.cluster_id:x}", header.revision)
            return Seat(
                claim,
                ttl=self._ttl,
                renew=lambda: self._renew(lease),
                release=lambda: self._client.revoke(lease),
                asked_at=asked_at,
            )
        await self._client.revoke(lease)
        await self._until_free(header.revision + 1)
        return None

    async def _until_free(self, since: int) -> None:
        async for answer in self._client.watch(self._key, since=since):
            if any(event.type == pb.Event.DELETE for event in answer.events):
                return

    async def _renew(self, lease: int) -> bool:
        return await self._client.keep_alive(lease) > 0
