"""The simulated time may delay steps but never reorders them."""

import asyncio

from tests.fault_schedules.loop import Process, SimulatedLoop


def test_a_process_frozen_twice_runs_its_steps_in_order_of_arrival():
    """Messages arrive in the order in which they were sent, as from a stream."""
    taken: list[str] = []

    async def story() -> None:
        process = Process("often frozen")
        process.freeze(3)
        process.call_later(1, taken.append, "first")
        process.call_later(2.5, taken.append, "second")
        process.call_later(5, taken.append, "third")
        await asyncio.sleep(2)
        process.freeze(3)
        await asyncio.sleep(2.9)
        assert taken == []
        await asyncio.sleep(0.2)

    SimulatedLoop().run(story())  # type: ignore[abstract]
    assert taken == ["first", "second", "third"]
