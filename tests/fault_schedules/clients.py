"""A simulated client. It sends requests to any server and retries with the same key until it gets a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import UUID

from mooring.model.errors import MooringError
from mooring.model.tenancy.tenants import Principal
from mooring.services.administration.nodes import NodeAdmin
from mooring.services.submission.submission import SubmissionService
from mooring.wire.cluster.nodes import DrainRequest
from tests.fault_schedules.loop import Process

R = TypeVar("R")
_ANSWER_SECONDS = 4.0
_MAX_LATENCY_SECONDS = 0.05


class Api(Protocol):
    """A server's interface for clients."""

    process: Process
    submissions: SubmissionService
    nodes: NodeAdmin


class SimulatedClient:
    def __init__(self, principal: Principal, choose: Callable[[], Api], random: Random) -> None:
        self._principal = principal
        self._choose = choose
        self._random = random
        self._keys = 0
        self.asked: set[str] = set()
        """Names of the submitted workloads."""
        self.accepted: dict[str, UUID] = {}
        self.refusals: list[str] = []
        self.scaled: dict[UUID, int] = {}
        """The last requested number of replicas."""
        self.cancelled: set[UUID] = set()
        self.drained: set[str] = set()
        """Names of drained nodes, some of which may have been resumed."""

    async def submit(self, requests: list[dict[str, Any]]) -> None:
        self._keys += 1
        key = f"key-{self._keys}"
        self.asked |= {request["name"] for request in requests}
        try:
            answer = await self._ask(lambda api: api.submissions.submit_batch(self._principal, requests, key=key))
        except MooringError as refusal:
            self.refusals.append(f"{key}: {refusal.message}")
            return
        for request, item in zip(requests, answer.workloads, strict=True):
            if item.id is None:
                assert item.error is not None
                self.refusals.append(f"{request['name']}: {item.error.message}")
            else:
                self.accepted[request["name"]] = item.id

    async def cancel(self, workload_id: UUID) -> None:
        await self._ask(lambda api: api.submissions.remove(self._principal, workload_id, keep=True))
        self.cancelled.add(workload_id)

    async def scale(self, workload_id: UUID, replicas: int) -> None:
        try:
            await self._ask(lambda api: api.submissions.scale(self._principal, workload_id, replicas))
            self.scaled[workload_id] = replicas
        except MooringError:
            # The workload has ended meanwhile.
            pass

    async def drain(self, name: str, timeout_seconds: int | None = None) -> None:
        self.drained.add(name)
        request = DrainRequest(timeout_seconds=timeout_seconds)
        await self._ask(lambda api: api.nodes.drain(self._principal, name, request))

    async def resume(self, name: str) -> None:
        await self._ask(lambda api: api.nodes.resume(self._principal, name))

    async def _ask(self, what: Callable[[Api], Awaitable[R]]) -> R:
        while True:
            try:
                return await self._ask_once(self._choose(), what)
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _ask_once(self, api: Api, what: Callable[[Api], Awaitable[R]]) -> R:
        answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            try:
                found = await what(api)
            except Exception as error:
                answer: tuple[Callable[..., None], object] = answered.set_exception, error
            else:
                answer = answered.set_result, found
            await asyncio.sleep(self._random.uniform(0, _MAX_LATENCY_SECONDS))
            if not answered.done():
                answer[0](answer[1])

        api.process.start(serve())
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await answered
