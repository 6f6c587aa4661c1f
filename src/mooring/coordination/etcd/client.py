"""A client for etcd: reads, writes, transactions, leases and watches, with TLS, logins and several endpoints.

Every call has a deadline; one that finds its login expired logs in again. Methods are called by their path, so that the
generated messages are all that is needed of the protocol.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from mooring.coordination.etcd import etcd_pb2 as pb

M = TypeVar("M", bound=Message)
_Metadata = tuple[tuple[str, str], ...]

# A frozen server is noticed by the ping's own timeout; keepalive_timeout_ms alone has no effect, and pings more
# often than every ten seconds are refused by etcd.
_CHANNEL = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_PROGRESS_SECONDS = 5.0
_RECONNECT_SECONDS = 0.5
_STALE_LOGIN = ("invalid auth token", "auth store is old", "user name is empty")
_TEMPORARY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


def endpoints(hosts: str, port: int) -> list[str]:
    """Addresses of the hosts in a text such as `etcd-1,etcd-2:2390`."""
    found = []
    for host in filter(None, (part.strip() for part in hosts.split(","))):
        name, _, own = host.partition(":")
        found.append(f"{name}:{own or port}")
    if len(found) < 2:
        return found
    # Several endpoints of one channel must be addresses.
    return [f"{socket.gethostbyname(each.rsplit(':', 1)[0])}:{each.rsplit(':', 1)[1]}" for each in found]


class EtcdError(Exception):
    """etcd refused, or could not be reached."""


class Compacted(Exception):
    """What happened since the wanted revision is not all known any more: read everything again."""

    def __init__(self, revision: int) -> None:
        super().__init__(f"etcd has compacted its history up to revision {revision}")
        self.revision = revision


@dataclass(frozen=True, slots=True)
class Login:
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class Tls:
    """Without files the system's authorities are trusted and no certificate is shown."""

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
        """`endpoints`: host and port each, with a literal address if there are several."""
        target = endpoints[0] if len(endpoints) == 1 else f"ipv4:{','.join(endpoints)}"
        if tls is None:
            self._channel = grpc.aio.insecure_channel(target, _CHANNEL)
        else:
            self._channel = grpc.aio.secure_channel(target, tls.credentials(), _CHANNEL)
        self._login = login
        self._token: str | None = None
        self._timeout = timeout

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
        """A new lease; its id."""
        answer = await self._call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=seconds), pb.LeaseGrantResponse)
        return answer.ID

    async def revoke(self, lease: int) -> None:
        """End a lease, with all keys that were put under it."""
        await self._call("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), pb.LeaseRevokeResponse)

    async def keep_alive(self, lease: int) -> int:
        """Renew a lease once; the seconds that it has from now on, 0 if it is over."""

        async def one() -> AsyncIterator[pb.LeaseKeepAliveRequest]:
            yield pb.LeaseKeepAliveRequest(ID=lease)

        async def attempt(metadata: _Metadata) -> pb.LeaseKeepAliveResponse:
            call: Any = self._channel.stream_stream(
                "/etcdserverpb.Lease/LeaseKeepAlive",
                pb.LeaseKeepAliveRequest.SerializeToString,
                pb.LeaseKeepAliveResponse.FromString,
            )(one(), timeout=self._timeout, metadata=metadata)
            try:
                answer: pb.LeaseKeepAliveResponse = await call.read()
                return answer
            finally:
                call.cancel()

        return (await self._logged_in(attempt)).TTL

    async def watch(self, key: bytes, *, since: int) -> AsyncIterator[pb.WatchResponse]:
        """Changes of a key from revision `since` on, for ever: after a broken connection it goes on where it was.

        Compacted if part of them is not known any more.
        """
        following = since
        while True:
            try:
                async for answer in self._watch_once(key, following):
                    if answer.events:
                        yield answer
                        following = answer.header.revision + 1
            except grpc.aio.AioRpcError as error:
                if error.code() not in _TEMPORARY and not _is_stale(error.details()):
                    raise EtcdError(f"etcd refused to watch: {error.details()}") from error
                if _is_stale(error.details()):
                    self._token = None
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _watch_once(self, key: bytes, since: int) -> AsyncIterator[pb.WatchResponse]:
        call: Any = self._channel.stream_stream(
            "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
        )(metadata=await self._metadata())
        try:
            create = pb.WatchCreateRequest(key=key, start_revision=since, progress_notify=True)
            await call.write(pb.WatchRequest(create_request=create))
            asked = False
            while True:
                try:
                    async with asyncio.timeout(_PROGRESS_SECONDS):
                        answer: Any = await asyncio.shield(reading := asyncio.ensure_future(call.read()))
                except TimeoutError:
                    if asked:
                        # It does not even answer a question on its stream: the connection is dead.
                        reading.cancel()
                        return
                    asked = True
                    await call.write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
                    async with asyncio.timeout(_PROGRESS_SECONDS):
                        answer = await reading
                if answer is grpc.aio.EOF:
                    return
                asked = False
                if answer.compact_revision:
                    raise Compacted(answer.compact_revision)
                if answer.canceled:
                    if _is_stale(answer.cancel_reason):
                        self._token = None
                        return
                    raise EtcdError(f"etcd ended the watch: {answer.cancel_reason}")
                yield answer
        except TimeoutError:
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

        return await self._logged_in(attempt)

    async def _logged_in(self, attempt: Callable[[_Metadata], Awaitable[M]]) -> M:
        for last in (False, True):
            try:
                return await attempt(await self._metadata())
            except grpc.aio.AioRpcError as error:
                stale = error.code() is grpc.StatusCode.UNAUTHENTICATED or _is_stale(error.details())
                if self._login is None or not stale or last:
                    raise EtcdError(f"{error.code().name}: {error.details()}") from error
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
                raise EtcdError(f"cannot log in to etcd: {error.code().name}: {error.details()}") from error
            self._token = answer.token
        return (("token", self._token),)


def _is_stale(details: str | None) -> bool:
    return any(words in (details or "") for words in _STALE_LOGIN)
