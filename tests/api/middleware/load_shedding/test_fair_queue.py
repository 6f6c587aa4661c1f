"""Fair queuing between flows: who gets a seat next, who queues, who is refused."""

import asyncio

import pytest

from mooring.api.middleware.load_shedding import fair_queue as module
from mooring.api.middleware.load_shedding.fair_queue import FairQueue, Seat
from mooring.model.errors import TooManyAttempts
from tests.api.auth.test_login_throttle import Clock

ADA, BOB, CAT = "user ada", "user bob", "user cat"


async def requests(queue: FairQueue, flow: str, number: int) -> list[asyncio.Task[Seat]]:
    """As many requests of a flow at once; each has a seat, queues or is refused when this returns."""
    tasks = [asyncio.create_task(queue.seat(flow)) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


def seated(tasks: list[asyncio.Task[Seat]]) -> int:
    return sum(task.done() and task.exception() is None for task in tasks)


def refused(tasks: list[asyncio.Task[Seat]]) -> int:
    return sum(task.done() and isinstance(task.exception(), TooManyAttempts) for task in tasks)


async def abandon(*tasks: asyncio.Task[Seat]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def release(*seats: Seat) -> None:
    """Release seats and let the requests that get them begin."""
    for seat in seats:
        seat.release()
    for _ in range(2):
        await asyncio.sleep(0)


async def test_a_flow_alone_gets_all_seats_but_one_and_its_requests_begin_in_order():
    queue = FairQueue(3, clock=Clock())
    tasks = await requests(queue, ADA, 5)
    assert [task.done() for task in tasks] == [True, True, False, False, False]
    await release(tasks[0].result(), tasks[0].result())
    assert [task.done() for task in tasks] == [True, True, True, False, False]
    await abandon(*tasks)


async def test_a_flow_with_nothing_in_progress_gets_a_seat_at_once_while_another_floods():
    queue = FairQueue(6, clock=Clock())
    flood = await requests(queue, ADA, 200)
    (quiet,) = await requests(queue, BOB, 1)
    assert seated(flood) == 5
    assert seated([quiet]) == 1
    await abandon(*flood, quiet)


async def test_while_others_are_active_a_flow_gets_a_sixth_of_the_seats():
    clock = Clock()
    queue = FairQueue(12, clock=clock)
    (await queue.seat(BOB)).release()
    flood = await requests(queue, ADA, 50)
    assert seated(flood) == 2
    await abandon(*flood)
    clock.time += module._ACTIVE_SECONDS
    flood = await requests(queue, CAT, 50)
    await abandon(*flood)


async def test_immediate_requests_of_one_flow_do_not_starve_others():
    queue = FairQueue(12, clock=Clock())
    (await queue.seat(BOB)).release()
    ended = 0

    async def request() -> None:
        nonlocal ended
        (await queue.seat(ADA)).release()
        ended += 1

    flood = [asyncio.create_task(request()) for _ in range(50)]
    before, turns = 0, 0
    while ended < len(flood):
        await asyncio.sleep(0)
        assert ended - before <= 2
        before, turns = ended, turns + 1
    assert turns >= 25


async def test_a_free_seat_goes_to_the_flow_with_the_fewest_requests_in_progress():
    clock = Clock()
    queue = FairQueue(2, clock=clock)
    ada = await requests(queue, ADA, 8)
    bob = await requests(queue, BOB, 3)
    assert (seated(ada), seated(bob)) == (1, 1)
    (cat,) = await requests(queue, CAT, 1)
    # Whichever seat becomes free, the one who has none is next.
    clock.time += 0.01
    await release(bob[0].result())
    assert (seated(ada), seated(bob), seated([cat])) == (1, 1, 1)
    await abandon(*ada, *bob, cat)


async def test_flows_alternate_by_used_seat_time():
    clock = Clock()
    queue = FairQueue(1, clock=clock)
    order: list[str] = []

    async def request(flow: str, seconds: float) -> None:
        seat = await queue.seat(flow)
        order.append(flow)
        clock.time += seconds
        await asyncio.sleep(0)
        seat.release()

    blocking = await queue.seat(CAT)
    running = [asyncio.create_task(request(ADA, 0.003)) for _ in range(3)]
    running += [asyncio.create_task(request(BOB, 0.001)) for _ in range(6)]
    await asyncio.sleep(0)
    blocking.release()
    await asyncio.gather(*running)
    # Bob's requests are a third as long, so three of them begin for one of Ada's.
    assert order == [ADA, BOB, BOB, BOB, ADA, BOB, BOB, BOB, ADA]


async def test_a_flow_that_was_idle_has_saved_nothing_up():
    clock = Clock()
    queue = FairQueue(1, clock=clock)
    (await queue.seat(BOB)).release()
    for _ in range(10):
        seat = await queue.seat(ADA)
        clock.time += 0.01
        seat.release()
    blocking = await queue.seat(CAT)
    ada, bob = await requests(queue, ADA, 3), await requests(queue, BOB, 3)
    order = []
    await release(blocking)
    for _ in range(6):
        (flow, task) = next(
            (flow, task) for flow in (ADA, BOB) for task in (ada if flow == ADA else bob) if task.done()
        )
        (ada if flow == ADA else bob).remove(task)
        order.append(flow)
        clock.time += 0.01
        await release(task.result())
    # Ada used 0.1 s while Bob used nothing, and still they take turns.
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == [ADA, BOB]


async def test_only_the_flow_with_too_many_requests_is_refused():
    queue = FairQueue(1, queue_length=4, clock=Clock())
    ada = await requests(queue, ADA, 10)
    assert (seated(ada), refused(ada)) == (1, 5)
    with pytest.raises(TooManyAttempts, match="5 of your requests") as error:
        queue.check(ADA)
    assert error.value.code == "overloaded"
    assert error.value.details["retry_after_seconds"] >= 1
    for flow in (BOB, CAT):
        queue.check(flow)
        (quiet,) = await requests(queue, flow, 1)
        assert not quiet.done()
        await abandon(quiet)
    await abandon(*ada)


async def work(queue: FairQueue, clock: Clock, flow: str, seconds: float) -> None:
    """Many requests one after the other, each of this length."""
    for _ in range(60):
        seat = await queue.seat(flow)
        clock.time += seconds
        seat.release()


async def test_a_flow_queues_as_many_as_can_begin_soon_and_its_slowness_is_its_own():
    clock = Clock()
    queue = FairQueue(3, clock=clock)
    await work(queue, clock, ADA, 0.66)
    clock.time += 60
    # Two seats, and each is free again after 0.66 s: the sixth of the queue begins within 2 s.
    ada = await requests(queue, ADA, 10)
    assert (seated(ada), refused(ada)) == (2, 2)
    await abandon(*ada)
    clock.time += 60
    bob = await requests(queue, BOB, 60)
    assert refused(bob) == 0
    await abandon(*bob)


async def test_a_flow_that_keeps_being_refused_may_queue_less_until_it_slows_down():
    clock = Clock()
    queue = FairQueue(3, clock=clock)
    await work(queue, clock, ADA, 0.33)
    clock.time += 60
    early = await requests(queue, ADA, 14)
    assert refused(early) == 0
    for _ in range(200):
        with pytest.raises(TooManyAttempts):
            queue.check(ADA)
    await abandon(*early[2:])
    late = await requests(queue, ADA, 12)
    assert refused(late) == 12
    await release(*(task.result() for task in early[:2]))
    await work(queue, clock, ADA, 0.33)
    again = await requests(queue, ADA, 6)
    assert refused(again) == 0
    await abandon(*again)


async def test_a_request_that_waits_too_long_or_whose_client_left_takes_no_seat(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_BURST_SECONDS", 0.01)
    queue = FairQueue(1, wait_seconds=60)
    seat = await queue.seat(ADA)
    with pytest.raises(TooManyAttempts):
        await queue.seat(ADA)
    monkeypatch.setattr(module, "_MAX_BURST_SECONDS", 60)
    gone, going, granted, last = await requests(queue, ADA, 4)
    await abandon(gone)
    going.cancel()
    seat.release()
    await asyncio.sleep(0)
    # Its seat was granted at the moment at which it left.
    granted.cancel()
    await asyncio.gather(going, granted, return_exceptions=True)
    await release(await last)
    assert (queue._in_progress, queue._queued) == (0, {})


async def test_the_only_request_of_a_flow_waits_longer_than_further_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_BURST_SECONDS", 0.01)
    queue = FairQueue(1, wait_seconds=60)
    seat = await queue.seat(ADA)
    (first,) = await requests(queue, BOB, 1)
    with pytest.raises(TooManyAttempts):
        await queue.seat(BOB)
    assert not first.done()
    seat.release()
    (await first).release()


async def test_a_patient_request_queues_however_long_its_flow_takes_up_to_the_queue_length():
    clock = Clock()
    queue = FairQueue(2, queue_length=20, clock=clock)
    await work(queue, clock, ADA, 1.0)
    clock.time += 60
    tasks = [asyncio.create_task(queue.seat(ADA, patient=True)) for _ in range(30)]
    await asyncio.sleep(0)
    assert (seated(tasks), refused(tasks)) == (1, 9)
    await abandon(*tasks)


async def test_the_memory_for_flows_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_IDLE_FLOWS", 10)
    queue = FairQueue(2, clock=Clock())
    busy = await queue.seat(ADA)
    for number in range(100):
        (await queue.seat(f"address {number}")).release()
    assert len(queue._flows) == 10
    assert ADA in queue._flows
    busy.release()
