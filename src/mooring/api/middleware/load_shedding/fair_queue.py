"""Fair queuing: a limited number of seats (requests in progress), shared between flows."""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mooring.model.errors import TooManyAttempts
from mooring.telemetry import metrics

_BURST_SECONDS = 2.0
"""A request of a flow that has others in progress queues only if it can expect a seat within this time."""
_MAX_BURST_SECONDS = 4.0
"""And is refused after this time, where seats turn out to be held longer than before."""
_REACTION = 0.03
"""Weight of the newest request in a flow's share of refused requests."""
_DURATION_WEIGHT = 0.1
"""Weight of the newest request in how long a flow's requests hold a seat."""
_ACTIVE_SECONDS = 5.0
"""A flow counts as active for this long after its last request."""
_CONTENDED_FRACTION = 6
"""While other flows are active, one flow gets this fraction of the seats."""
_MAX_IDLE_FLOWS = 10_000
_RETRY_SECONDS = (1, 2, 3)


@dataclass(eq=False, slots=True)
class _Flow:
    key: str
    virtual_seconds: float
    """Seat time that it has used, raised to that of the flows in service whenever it becomes busy again."""
    last_request_at: float
    seats: int = 0
    leaving: int = 0
    """Those of its seats that are free in the next iteration of the event loop."""
    queue: deque[asyncio.Future[None]] = field(default_factory=deque)
    refused_share: float = 0.0
    seat_seconds: float = 0.0
    """Moving average of the time for which its requests hold a seat."""

    @property
    def idle(self) -> bool:
        return self.seats == 0 and not self.queue


class Seat:
    """A request in progress, until its response begins or until it only waits for an event."""

    def __init__(self, queue: FairQueue, flow: _Flow, since: float) -> None:
        self._queue: FairQueue | None = queue
        self._flow = flow
        self._since = since

    def release(self) -> None:
        """Let the next request begin. Idempotent."""
        queue, self._queue = self._queue, None
        if queue is not None:
            queue._release(self._flow, self._since)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self.release()


class FairQueue:
    """The seats of one priority level and a queue per flow in front of them.

    A free seat goes to the flow with the fewest requests in progress, and among equals to the one that has used the
    least seat time: a flow with nothing in progress is always next, and a flow's own requests queue behind each other.
    While several flows are active, one flow gets at most a sixth of the seats; alone, all but one, which stays free
    for the next flow. Raises TooManyAttempts for a flow whose own backlog is too long.
    """

    def __init__(
        self,
        seats: int,
        *,
        queue_length: int = 64,
        wait_seconds: float = 10.0,
        max_queued_flows: int = 1_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait_seconds`: the longest wait of a flow's only request."""
        self._seats = seats
        self._queue_length = queue_length
        self._wait_seconds = wait_seconds
        self._max_queued_flows = max_queued_flows
        self._clock = clock
        self._in_progress = 0
        self._flows: OrderedDict[str, _Flow] = OrderedDict()
        """The flow that asked last comes last."""
        self._queued: dict[str, _Flow] = {}
        """Flows whose queue is not empty."""
        self._virtual_seconds = 0.0

    @property
    def has_free_seat(self) -> bool:
        return self._in_progress < self._seats

    def check(self, key: str, *, patient: bool = False) -> None:
        """Refuse a request that could neither begin nor queue now, before anything is done for it."""
        flow = self._flow(key)
        if not self._may_begin(flow) and not self._may_queue(flow, patient=patient):
            raise self._refusal(flow)

    async def seat(self, key: str, *, patient: bool = False) -> Seat:
        """Take a seat, or queue for one. `patient`: however long the flow's own queue takes, within the bounds."""
        flow = self._flow(key)
        if flow.idle:
            flow.virtual_seconds = max(flow.virtual_seconds, self._virtual_seconds)
        # Nobody overtakes the flow's own queue.
        if not flow.queue and self._may_begin(flow):
            self._begin(flow)
        elif self._may_queue(flow, patient=patient):
            await self._wait(flow, patient=patient)
        else:
            raise self._refusal(flow)
        flow.refused_share -= _REACTION * flow.refused_share
        return Seat(self, flow, self._clock())

    def _may_begin(self, flow: _Flow) -> bool:
        return self._in_progress < self._seats and flow.seats < self._most_seats(flow)

    def _may_queue(self, flow: _Flow, *, patient: bool = False) -> bool:
        if flow.idle or (flow.leaving and not flow.queue):
            return len(self._queued) < self._max_queued_flows
        if len(flow.queue) >= self._queue_length:
            return False
        if patient:
            return True
        seats = min(float(self._most_seats(flow)), self._seats / max(1, len(self._queued)))
        expected_seconds = (len(flow.queue) + 1) * flow.seat_seconds / seats
        # A flow that keeps being refused waits less, so that its accepted requests are answered as soon as usual.
        return expected_seconds <= _BURST_SECONDS * (1 - flow.refused_share) ** 3

    def _most_seats(self, flow: _Flow) -> int:
        for other in reversed(self._flows.values()):
            if other is flow:
                continue
            if not other.idle or other.last_request_at > self._clock() - _ACTIVE_SECONDS:
                return max(1, self._seats // _CONTENDED_FRACTION)
            break
        return max(1, self._seats - 1)

    def _begin(self, flow: _Flow) -> None:
        flow.seats += 1
        self._in_progress += 1
        self._virtual_seconds = max(self._virtual_seconds, flow.virtual_seconds)
        metrics.requests_in_progress.inc()

    async def _wait(self, flow: _Flow, *, patient: bool) -> None:
        seconds = self._wait_seconds if patient or flow.idle else min(_MAX_BURST_SECONDS, self._wait_seconds)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flow.queue.append(granted)
        self._queued[flow.key] = flow
        try:
            async with asyncio.timeout(seconds):
                await granted
        except BaseException as error:
            if granted in flow.queue:
                flow.queue.remove(granted)
                if not flow.queue:
                    del self._queued[flow.key]
            elif granted.done() and not granted.cancelled():
                # The seat was granted at the moment at which the request gave up.
                self._leave(flow)
            if isinstance(error, TimeoutError):
                raise self._refusal(flow) from None
            raise

    def _release(self, flow: _Flow, since: float) -> None:
        held_seconds = self._clock() - since
        flow.virtual_seconds += held_seconds
        flow.seat_seconds += _DURATION_WEIGHT * (held_seconds - flow.seat_seconds)
        # The seat is free in the next iteration of the event loop. Otherwise requests that need not wait for anything
        # would run one after the other in the same iteration, however many of one flow arrive together, and everything
        # else that became ready meanwhile would wait for all of them.
        flow.leaving += 1
        asyncio.get_running_loop().call_soon(self._released, flow)

    def _released(self, flow: _Flow) -> None:
        flow.leaving -= 1
        self._leave(flow)

    def _leave(self, flow: _Flow) -> None:
        flow.seats -= 1
        self._in_progress -= 1
        metrics.requests_in_progress.dec()
        self._dispatch()

    def _dispatch(self) -> None:
        while self._queued and self._in_progress < self._seats:
            flow = min(self._queued.values(), key=_precedence)
            if flow.seats >= self._most_seats(flow):
                ready = [other for other in self._queued.values() if other.seats < self._most_seats(other)]
                if not ready:
                    return
                flow = min(ready, key=_precedence)
            granted = flow.queue.popleft()
            if not flow.queue:
                del self._queued[flow.key]
            if not granted.done():
                self._begin(flow)
                granted.set_result(None)

    def _flow(self, key: str) -> _Flow:
        now = self._clock()
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(key, self._virtual_seconds, now)
            self._forget_idle()
        flow.last_request_at = now
        self._flows.move_to_end(key)
        return flow

    def _forget_idle(self) -> None:
        """Forget the flows that asked longest ago; those with requests are few, by the limits on queues."""
        if len(self._flows) <= _MAX_IDLE_FLOWS:
            return
        oldest = next((key for key, flow in self._flows.items() if flow.idle), None)
        if oldest is not None:
            del self._flows[oldest]

    def _refusal(self, flow: _Flow) -> TooManyAttempts:
        flow.refused_share += _REACTION * (1 - flow.refused_share)
        metrics.requests_refused.inc()
        return TooManyAttempts(
            f"the server is busy, and {flow.seats + len(flow.queue)} of your requests are in progress or queued; "
            "wait for their answers, then try again",
            code="overloaded",
            # Clients that are refused together do not come back together.
            details={"retry_after_seconds": random.choice(_RETRY_SECONDS)},
        )


def _precedence(flow: _Flow) -> tuple[int, float]:
    return flow.seats, flow.virtual_seconds
