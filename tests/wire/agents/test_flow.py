"""Flow control between two sides: what is not taken is not sent, and who sends more is found out."""

from __future__ import annotations

import asyncio
import os

import pytest

from mooring.model.errors import InvalidInput
from mooring.wire.agents import channels
from mooring.wire.agents.agent_protocol import CHANNEL_WINDOW
from mooring.wire.agents.channels import (
    ChannelResult,
    Data,
    Frame,
    Size,
    Window,
)
from mooring.wire.agents.flow import PIECE_BYTES, Side


class Wire:
    """Hands everything to the other side at once."""

    def __init__(self) -> None:
        self.far: Side | None = None
        self.sent: list[bytes] = []

    async def data(self, data: bytes, error: bool) -> None:
        self.sent.append(data)
        assert self.far is not None
        assert self.far.take(data, error)

    async def window(self, count: int) -> None:
        assert self.far is not None
        self.far.grant(count)


def connected() -> tuple[Side, Side, Wire]:
    there, back = Wire(), Wire()
    one, other = Side(there), Side(back)
    there.far, back.far = other, one
    return one, other, there


async def test_a_writer_waits_for_a_reader_and_nothing_is_lost_or_mixed():
    one, other, wire = connected()
    given = os.urandom(3 * CHANNEL_WINDOW)
    writing = asyncio.create_task(one.write(given))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (sum(map(len, wire.sent)), writing.done()) == (CHANNEL_WINDOW, False)
    assert max(map(len, wire.sent)) <= PIECE_BYTES
    taken = b""
    while len(taken) < len(given):
        piece = await other.read()
        assert piece is not None
        taken += piece[0]
    await writing
    assert taken == given


async def test_directions_end_separately_and_standard_error_is_separate():
    one, other, _ = connected()
    for data, error in ((b"a", False), (b"b", False), (b"oops", True), (b"c", False)):
        await one.write(data, error)
    await one.write(b"")
    assert [await other.read() for _ in range(4)] == [(b"ab", False), (b"oops", True), (b"c", False), None]
    await other.write(b"still")
    assert await one.read() == (b"still", False)


async def test_the_end_leaves_received_bytes_readable_and_releases_a_waiting_writer():
    one, other, _ = connected()
    writing = asyncio.create_task(one.write(bytes(2 * CHANNEL_WINDOW)))
    await other.write(b"last words")
    one.end()
    await writing
    assert [await one.read(), await one.read()] == [(b"last words", False), None]


async def test_more_than_was_allowed_is_refused():
    one, _, _ = connected()
    assert one.take(bytes(CHANNEL_WINDOW), False)
    assert not one.take(b"x", False)
    other, _, _ = connected()
    assert other.take(b"", False)
    assert not other.take(b"after its end", False)


@pytest.mark.parametrize(
    "frame",
    [
        Data(b"\x00\xff"),
        Data(b""),
        Data(b"oops", True),
        Window(2**32 - 1),
        Size(24, 80),
        ChannelResult(exit_code=3),
        ChannelResult(status=404, code="not-found", message="there is no task"),
    ],
)
def test_frames_come_out_as_they_went_in(frame: Frame):
    assert channels.decode(channels.encode(frame)) == frame


@pytest.mark.parametrize("frame", [b"", b"\x09", b"\x02\x01", b"\x03\x01", b"\x04{", b"\x04[]"])
def test_an_invalid_frame_is_refused(frame: bytes):
    with pytest.raises(InvalidInput):
        channels.decode(frame)
