"""The simulation's own time: it may delay what really happens, and never turns it round."""

import asyncio

from tests.simulation.loop import Process, SimulatedLoop


def test_a_process_that_is_frozen_again_takes_its_steps_in_the_order_in_which_they_came():
    """As from a stream: what was said first is heard first."""
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
