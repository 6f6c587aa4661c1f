"""Channels into a task as clients open them: one WebSocket each, one opening in JSON, then binary frames.

The first byte of a frame says what it is (`Kind`). Data goes both ways; either side sends at most
CHANNEL_WINDOW bytes, and then as many more as the window frames of the other side allow.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated

import msgspec
from pydantic import Field

from mooring.model.errors import InvalidInput
from mooring.wire.fields import MAX_COMMAND, Name, Request, Text

SUBPROTOCOL = "mooring.channel"
"""Offered by browsers, together with one that holds their token."""
MAX_OPENING_BYTES = 64 * 1024

Port = Annotated[int, Field(ge=1, le=65535)]
Lines = Annotated[int, Field(ge=1, le=65535)]


class Kind(IntEnum):
    DATA = 0
    """Input or output; empty: end of this direction."""
    ERROR_DATA = 1
    """Standard error of a command without a terminal."""
    WINDOW = 2
    """Grant of this many more bytes, as four bytes, big-endian."""
    SIZE = 3
    """Rows and columns of the terminal, as two bytes each, big-endian."""
    END = 4
    """The end, as JSON: an `ChannelResult`. Nothing follows."""


class _Opening(Request):
    container: Name | None = Field(default=None, description="Else the first")


class ExecOpening(_Opening):
    """Run a command in a running task."""

    command: list[Text] = Field(min_length=1, max_length=MAX_COMMAND)
    terminal: bool = False
    rows: Lines = 24
    columns: Lines = 80


class AttachOpening(_Opening):
    """Attach to the input and output of a container."""

    replay: bool = Field(default=False, description="First send the latest earlier output")
    output: bool = Field(default=True, description="Send output; otherwise only pass input")


class ForwardOpening(Request):
    """Connect to a port of a task."""

    port: Port | None = Field(default=None, description="Port (default: the first port that is assigned to the task)")


class ChannelResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a channel: the exit code of a command, or an error."""

    exit_code: int | None = None
    status: int | None = None
    """The code of the error, as in an HTTP response."""
    code: str | None = None
    message: str = ""


class Size(msgspec.Struct, frozen=True):
    rows: int
    columns: int


class Data(msgspec.Struct, frozen=True):
    data: bytes
    error: bool = False


class Window(msgspec.Struct, frozen=True):
    count: int


Frame = Data | Window | Size | ChannelResult


def encode(frame: Frame) -> bytes:
    match frame:
        case Data():
            return bytes((Kind.ERROR_DATA if frame.error else Kind.DATA,)) + frame.data
        case Window():
            return struct.pack("!BI", Kind.WINDOW, frame.count)
        case Size():
            return struct.pack("!BHH", Kind.SIZE, frame.rows, frame.columns)
        case ChannelResult():
            return bytes((Kind.END,)) + msgspec.json.encode(frame)


def decode(frame: bytes) -> Frame:
    """Raise InvalidInput if it is not a frame."""
    try:
        kind, rest = Kind(frame[0]), frame[1:]
        match kind:
            case Kind.DATA | Kind.ERROR_DATA:
                return Data(rest, kind is Kind.ERROR_DATA)
            case Kind.WINDOW:
                return Window(*struct.unpack("!I", rest))
            case Kind.SIZE:
                return Size(*struct.unpack("!HH", rest))
            case Kind.END:
                return msgspec.json.decode(rest, type=ChannelResult)
    except (IndexError, ValueError, struct.error, msgspec.MsgspecError):
        raise InvalidInput("not a frame of a channel", code="invalid-frame") from None
