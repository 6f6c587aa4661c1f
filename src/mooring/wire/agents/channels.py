"""Ways into a task as people's programs open them: a WebSocket each, one opening in JSON, then binary frames.

The first byte of a frame says what it is (`Kind`). Data goes both ways; either side sends at most as many bytes as
the other takes: CHANNEL_WINDOW, and as many more as its window frames say.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated

import msgspec
from pydantic import Field

from mooring.model.errors import InvalidInput
from mooring.wire.fields import MAX_COMMAND, Name, Request, Text

MAX_OPENING_BYTES = 64 * 1024

Port = Annotated[int, Field(ge=1, le=65535)]
Lines = Annotated[int, Field(ge=1, le=65535)]


class Kind(IntEnum):
    DATA = 0
    """Input, or output; without any byte: this direction is over."""
    ERROR_DATA = 1
    """Standard error of a command without a terminal."""
    WINDOW = 2
    """So many bytes more are taken, as four bytes, the highest first."""
    SIZE = 3
    """Rows and columns of the terminal, as two bytes each, the highest first."""
    END = 4
    """How it ended, as JSON: an `Ending`. Nothing follows."""


class _Opening(Request):
    container: Name | None = Field(default=None, description="Else the first")


class ExecOpening(_Opening):
    """Run a command in a task, beside what runs there."""

    command: list[Text] = Field(min_length=1, max_length=MAX_COMMAND)
    terminal: bool = False
    rows: Lines = 24
    columns: Lines = 80


class AttachOpening(_Opening):
    """Be connected with the input and output of a container itself."""


class ForwardOpening(Request):
    """Be connected with what listens on a port of a task."""

    port: Port | None = Field(default=None, description="Else the first port that the task was given")


class Ending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a way in ended: with the exit code of a command, or with a problem."""

    exit_code: int | None = None
    status: int | None = None
    """Of the problem, as an answer over HTTP would have it."""
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


Frame = Data | Window | Size | Ending


def encode(frame: Frame) -> bytes:
    match frame:
        case Data():
            return bytes((Kind.ERROR_DATA if frame.error else Kind.DATA,)) + frame.data
        case Window():
            return struct.pack("!BI", Kind.WINDOW, frame.count)
        case Size():
            return struct.pack("!BHH", Kind.SIZE, frame.rows, frame.columns)
        case Ending():
            return bytes((Kind.END,)) + msgspec.json.encode(frame)


def decode(frame: bytes) -> Frame:
    """InvalidInput where it is no frame."""
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
                return msgspec.json.decode(rest, type=Ending)
    except (IndexError, ValueError, struct.error, msgspec.MsgspecError):
        raise InvalidInput("this is no frame of a way in", code="invalid-frame") from None
