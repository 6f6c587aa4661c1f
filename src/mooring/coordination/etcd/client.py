"""A client for etcd: reads, writes, transactions, leases and watches, with TLS, logins and several endpoints.

Every call has a deadline, and logs in again if its login has expired. Methods are called by path, so that only the
messages of the protocol are generated.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from mooring.coordination.etcd import etcd_pb2 as pb

_log = structlog.get_logger(__name__)
M = TypeVar("M", bound=Message)
_Metadata = tuple[tuple[str, str], ...]

# The ping timeout detects a frozen server; keepalive_timeout_ms alone has no effect, and etcd refuses pings more
# often than every ten seconds.
_CHANNEL = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_RELIST_SECONDS = 5.0
"""Interval of reads of an observed key, in addition to its watch."""
_RECONNECT_SECONDS = 0.5
_STALE_LOGIN = ("invalid auth token", "auth store is old", "user name is empty")
_TEMPORARY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


def endpoints(hosts: str, port: int) -> list[str]:
    """Return the addresses of the hosts in a text such as `etcd-1,etcd-2:2390`."""
    found = []
    for host in filter(None, (part.strip() for part in hosts.split(","))):
        name, _, own = host.partition(":")
        found.append(f"{name}:{own or port}")
    if len(found) < 2:
        return found
    # A channel with several endpoints accepts only IP addresses.
    return [f"{socket.gethostbyname(each.rsplit(':', 1)[0])}:{each.rsplit(':', 1)[1]}" for each in found]


class EtcdError(Exception):
    """etcd refused the call, or is unreachable."""

    def __init__(self, message: str, status: str = "refused") -> None:
        super().__init__(message)
        self.status = f"etcd: {status}"


class HistoryLost(Exception):
    """The changes since a revision are not available. Read the key again, and watch from its revision."""


class Compacted(HistoryLost):
    def __init__(self, revision: int) -> None:
        super().__init__(f"etcd has compacted its history up to revision {revision}")
        self.revision = revision


class Rewound(HistoryLost):
    """etcd is behind a revision that it announced: it lost data, was restored, or the member lags behind."""


@dataclass(frozen=True, slots=True)
class Login:
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS files. Without them, the system's authorities are trusted and no client certificate is sent."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        ca, key, certificate = (
            None if file is None else file.read_bytes() for file in (self.ca, self.key, self.certificate)
        )
        return grpc.ssl_channel_credentials(ca, key, certificate)


class EtcdClient:
    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        login: Login | None = None,
        timeout: float = 3.0,
    ) -> None:
        """`endpoints`: `host:port` each; IP addresses if there are several."""
        target = endpoints[0] if len(endpoints) == 1 else f"ipv4:{','.join(endpoints)}"
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, _CHANNEL)
        else:
            self._channel = grpc.aio.secure_channel(target, tls.credentials(), _CHANNEL)
        self._login = login
        self._token: str | None = None
        self._timeout = timeout
        self._cluster = 0
        self._revision = 0
        """Highest revision that this cluster has announced."""

    async def close(self) -> None:
        await self._channel.close(None)

    async def get(self, key: bytes) -> pb.RangeResponse:
        return await self._call("KV/Range", pb.RangeRequest(key=key), pb.RangeResponse)

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> pb.PutResponse:
        return await self._call("KV/Put", pb.PutRequest(key=key, value=value, lease=lease), pb.PutResponse)

    async def delete(self, key: bytes) -> pb.DeleteRangeResponse:
        return await self._call("KV/DeleteRange", pb.DeleteRangeRequest(key=key), pb.DeleteRangeResponse)

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        return await self._call("KV/Txn", request, pb.TxnResponse)

    async def grant(self, seconds: int) -> int:
        """Create a lease and return its id."""
        answer = await self._call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=seconds), pb.LeaseGrantResponse)
        return answer.ID

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete all keys attached to it."""
        await self._call("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease once. Return its remaining seconds, 0 if it has expired."""

        async def one() -> AsyncIterator[pb.LeaseKeepAliveRequest]:
            yield pb.LeaseKeepAliveRequest(ID=lease)

        async def attempt(metadata: _Metadata) -> pb.LeaseKeepAliveResponse:
            call: Any = self._channel.stream_stream(
                "/etcdserverpb.Lease/LeaseKeepAlive",
                pb.LeaseKeepAliveRequest.SerializeToString,
                pb.LeaseKeepAliveResponse.FromString,
            )(one(), timeout=self._timeout, metadata=metadata)
            try:
                answer: Any = await call.read()
                if not isinstance(answer, pb.LeaseKeepAliveResponse):
                    raise EtcdError("etcd ended the renewal of a lease without an answer")
                return answer
            finally:
                call.cancel()

        return (await self._logged_in(attempt)).TTL

    async def observe(self, key: bytes) -> AsyncGenerator[pb.KeyValue | None, None]:
        """Yield the key now and after every change, None while it does not exist. Raise EtcdError if etcd fails.

        The key is read first, after every broken connection and every few seconds, and watched in between. No revision
        is used across connections: an etcd that was wiped or restored counts from a lower one, often under the same
        cluster id, and a watch that resumes at the higher one hangs without an event, an error or an end.
        """
        known: pb.KeyValue | None = None
        first = True
        while True:
            found = await self.get(key)
            value = found.kvs[0] if found.kvs else None
            if first or value != known:
                yield value
            known, first = value, False
            relist_at = asyncio.get_running_loop().time() + _RELIST_SECONDS
            async with aclosing(self.watch(key, since=found.header.revision + 1)) as watch:
                while (answer := await _next(watch, relist_at)) is not None:
                    for event in answer.events:
                        known = event.kv if event.type == pb.Event.PUT else None
                        yield known
            if asyncio.get_running_loop().time() < relist_at:
                # The watch broke: changes may have been missed, so the next value counts as a change.
                first = True
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def watch(self, key: bytes, *, since: int) -> AsyncGenerator[pb.WatchResponse, None]:
        """Yield the changes of a key from revision `since` until the connection breaks. Raise HistoryLost on a gap."""
        metadata = await self._metadata()
        call: Any = self._channel.stream_stream(
            "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
        )(metadata=metadata)
        try:
            await call.write(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, start_revision=since)))
            while (answer := await call.read()) is not grpc.aio.EOF:
                if answer.compact_revision:
                    raise Compacted(answer.compact_revision)
                if answer.canceled:
                    if _is_stale(answer.cancel_reason):
                        self._token = None
                        return
                    raise EtcdError(f"etcd ended the watch: {answer.cancel_reason}")
                if answer.created and answer.header.revision < since - 1:
                    raise Rewound(f"etcd is at revision {answer.header.revision}, and was at {since - 1}")
                if answer.events:
                    yield answer
        except grpc.aio.AioRpcError as error:
            if _is_stale(error.details()):
                self._token = None
            elif error.code() not in _TEMPORARY:
                raise EtcdError(f"etcd refused to watch: {error.details()}") from error
        except asyncio.InvalidStateError:
            # The call ended before the request was written.
            return
        finally:
            call.cancel()

    async def _call(self, method: str, request: Message, kind: type[M]) -> M:
        async def attempt(metadata: _Metadata) -> M:
            call: Any = self._channel.unary_unary(
                f"/etcdserverpb.{method}", type(request).SerializeToString, kind.FromString
            )
            answer: M = await call(request, timeout=self._timeout, metadata=metadata)
            return answer

        before = self._revision
        answer = await self._logged_in(attempt)
        self._compare(answer, before)
        return answer

    def _compare(self, answer: Message, before: int) -> None:
        """Detect lost data: calls are linearizable, so a revision is never below one known before the call."""
        header: pb.ResponseHeader = answer.header  # type: ignore[attr-defined]
        if header.cluster_id != self._cluster:
            if self._cluster:
                _log.warning(
                    "This is a different etcd cluster than before; its data is read again",
                    before=f"{self._cluster:x}",
                    now=f"{header.cluster_id:x}",
                )
            self._cluster, self._revision = header.cluster_id, header.revision
        elif header.revision < before <= self._revision:
            _log.warning(
                "etcd lost data, or was restored from an older snapshot; its data is read again",
                revision_before=before,
                revision_now=header.revision,
            )
            self._revision = header.revision
        else:
            self._revision = max(self._revision, header.revision)

    async def _logged_in(self, attempt: Callable[[_Metadata], Awaitable[M]]) -> M:
        for last in (False, True):
            try:
                return await attempt(await self._metadata())
            except grpc.aio.AioRpcError as error:
                stale = error.code() is grpc.StatusCode.UNAUTHENTICATED or _is_stale(error.details())
                if self._login is None or not stale or last:
                    raise EtcdError(f"{error.code().name}: {error.details()}", error.code().name) from error
                self._token = None
        raise AssertionError("unreachable")

    async def _metadata(self) -> _Metadata:
        if self._login is None:
            return ()
        if self._token is None:
            call: Any = self._channel.unary_unary(
                "/etcdserverpb.Auth/Authenticate",
                pb.AuthenticateRequest.SerializeToString,
                pb.AuthenticateResponse.FromString,
            )
            asked = pb.AuthenticateRequest(name=self._login.username, password=self._login.password)
            try:
                answer: pb.AuthenticateResponse = await call(asked, timeout=self._timeout)
            except grpc.aio.AioRpcError as error:
                raise EtcdError(
                    f"cannot log in to etcd: {error.code().name}: {error.details()}", error.code().name
                ) from error
            self._token = answer.token
        return (("token", self._token),)


async def _next(watch: AsyncIterator[pb.WatchResponse], until: float) -> pb.WatchResponse | None:
    """Return the next response of a watch, or None at the time `until` (loop clock) or if the watch broke."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(watch, None)
    except TimeoutError:
        return None
    except HistoryLost as error:
        _log.info("A watch of etcd is restarted", reason=str(error))
        return None


def _is_stale(details: str | None) -> bool:
    return any(words in (details or "") for words in _STALE_LOGIN)
