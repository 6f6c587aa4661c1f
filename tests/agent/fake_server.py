"""The server's side of the agent protocol, as far as the agent's tests need it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

import msgspec
from aiohttp import WSMsgType, web

from mooring.wire.agents.agent_protocol import (
    PROTOCOL,
    Desired,
    FromAgent,
    FromServer,
    Heartbeat,
    Hello,
    JoinAnswer,
    JoinRequest,
    LogChunk,
    LogRequest,
    Received,
    Refused,
    Report,
    TaskReport,
    Welcome,
    decode_from_agent,
    encode,
)
from mooring.wire.agents.desired_tasks import DesiredTask


class FakeServer:
    """Accepts one agent at a time, records all its messages, and answers its reports unless disabled."""

    def __init__(self) -> None:
        self.node_id = uuid4()
        self.credential = "node-secret"
        self.tokens = {"join-me"}
        self.term = 1
        self.desired: list[DesiredTask] = []
        self.answers_reports = True
        self.refusal: Refused | None = None
        """Response to send instead of accepting the stream."""
        self.welcome = Welcome(protocol=PROTOCOL, server_version="0.1.0", heartbeat_seconds=0.1)
        self.joins: list[JoinRequest] = []
        self.heard: list[FromAgent] = []
        self.socket: web.WebSocketResponse | None = None
        self.connections = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self, place: socket.socket | None = None) -> None:
        """At a free port, or where this socket is bound."""
        app = web.Application()
        app.router.add_post("/api/agent/join", self._join)
        app.router.add_get("/api/agent/stream", self._stream)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        if place is None:
            place = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, place).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self.socket is not None:
            await self.socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def want(self, *tasks: DesiredTask, term: int | None = None, end: Iterable[UUID] = ()) -> None:
        self.desired = list(tasks)
        await self.say(Desired(term=self.term if term is None else term, tasks=self.desired, end=list(end)))

    async def say(self, message: FromServer) -> None:
        assert self.socket is not None
        await self.socket.send_str(encode(message))

    async def close_channels(self) -> None:
        assert self.socket is not None
        await self.socket.close()

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.heard if isinstance(message, kind)]

    def reports(self, task: DesiredTask) -> list[TaskReport]:
        return [report for message in self.of(Report) for report in message.tasks if report.task_id == task.task_id]

    def statuses(self, task: DesiredTask) -> list[str]:
        return [report.status for report in self.reports(task)]

    def last(self, task: DesiredTask) -> TaskReport | None:
        return next(reversed(self.reports(task)), None)

    def ended(self, task: DesiredTask) -> Callable[[], bool]:
        return lambda: (report := self.last(task)) is not None and report.gone

    async def log(self, task: DesiredTask, **fields: Any) -> UUID:
        request = LogRequest(request_id=uuid4(), task_id=task.task_id, **fields)
        await self.say(request)
        return request.request_id

    def chunks(self, request_id: UUID) -> list[LogChunk]:
        return [chunk for chunk in self.of(LogChunk) if chunk.request_id == request_id]

    async def _join(self, request: web.Request) -> web.Response:
        asked = msgspec.json.decode(await request.read(), type=JoinRequest)
        self.joins.append(asked)
        if asked.token not in self.tokens:
            return web.json_response({"error": {"code": "join-refused", "message": "the token is spent"}}, status=403)
        self.tokens.discard(asked.token)
        answer = JoinAnswer(node_id=self.node_id, name=asked.name, pool="default", credential=self.credential)
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.credential}":
            return web.Response(status=401)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.socket = socket
        self.connections += 1
        if self.refusal is not None:
            await self.say(self.refusal)
            return socket
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                continue
            message = decode_from_agent(frame.data)
            self.heard.append(message)
            match message:
                case Hello():
                    await self.say(self.welcome)
                    await self.say(Desired(term=self.term, tasks=self.desired))
                case Report() if self.answers_reports:
                    await self.say(Received(number=message.number))
                case Heartbeat():
                    await asyncio.sleep(0)
        return socket
