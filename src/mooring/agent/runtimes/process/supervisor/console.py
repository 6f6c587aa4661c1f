"""The console of a container: its input, and the users attached to it through a socket in the task's folder.

The agent connects to the socket on behalf of a user, so an attached user loses the connection when the agent restarts,
and the container notices nothing. Messages keep their boundaries (SOCK_SEQPACKET); their first byte is the kind.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

OPEN, INPUT, END_OF_INPUT, SIZE = b"O", b"I", b"E", b"S"
"""Kinds of messages to the supervisor: two flags (replay, output), bytes, nothing, rows and columns."""
OUTPUT, EXIT = b"D", b"X"
"""Kinds of messages from the supervisor: bytes, exit code."""

PIECE_BYTES = 32 * 1024
_MAX_PENDING_INPUT = 64 * 1024
_MAX_PENDING_OUTPUT = 256 * 1024
_REPLAYED_BYTES = 64 * 1024
_MAX_USERS = 32
_STALLED_SECONDS = 10.0
"""The container waits that long for a user who reads nothing; then the user is disconnected."""
_LAST_SECONDS = 2.0
_MAX_ROWS = 65535


def socket_name(index: int) -> str:
    return f"attach-{index}"


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Console:
    def __init__(self, folder: str, index: int, *, terminal: bool, size: tuple[int, int]) -> None:
        self.terminal = terminal
        self.size = size
        self.users: list[User] = []
        self._listener = _listen(folder, socket_name(index))
        self._input: int | None = None
        self._pending = bytearray()
        self._input_ended = False
        self._recent = bytearray()
        self._exit_code: int | None = None

    @property
    def full(self) -> bool:
        """A user has not read the output yet; more is left in the pipe or terminal until then."""
        return any(len(user.pending) > _MAX_PENDING_OUTPUT for user in self.users)

    def started(self, descriptor: int) -> None:
        """Connect the console to the input of a process that has started."""
        os.set_blocking(descriptor, False)
        self._input, self._exit_code = descriptor, None
        self._write_input()

    def ended(self, exit_code: int) -> None:
        """Report the end of the process to the users, after its last output."""
        self._close_input()
        self._pending.clear()
        self._exit_code = exit_code
        for user in self.users:
            user.end(exit_code)
        self._forget_closed()

    def output(self, data: bytes) -> None:
        self._recent = (self._recent + data)[-_REPLAYED_BYTES:]
        for user in self.users:
            user.show(data)
        self._forget_closed()

    def register(self, poll: select.poll) -> None:
        poll.register(self._listener, select.POLLIN)
        if self._input is not None and self._pending:
            poll.register(self._input, select.POLLOUT)
        reads = len(self._pending) < _MAX_PENDING_INPUT
        for user in self.users:
            poll.register(user.connection, (select.POLLIN if reads else 0) | (select.POLLOUT if user.has_more else 0))

    def due_in(self) -> float | None:
        """Return the seconds until a user who does not read is disconnected."""
        left = [user.stalled_until - time.monotonic() for user in self.users if len(user.pending) > _MAX_PENDING_OUTPUT]
        return min(left, default=None)

    def step(self, events: dict[int, int]) -> None:
        """Accept users, and move their input and the container's output as far as possible without waiting."""
        for user in self.users:
            event = events.get(user.connection.fileno(), 0)
            if event & select.POLLIN:
                self._receive(user)
            elif event & (select.POLLHUP | select.POLLERR):
                user.close()
            user.flush()
            if len(user.pending) > _MAX_PENDING_OUTPUT and time.monotonic() >= user.stalled_until:
                user.close()
        if events.get(self._listener.fileno(), 0):
            self._accept()
        self._forget_closed()
        self._write_input()

    def close(self) -> None:
        """Send the last output to users who read it, for a moment, and disconnect them."""
        self._close_input()
        until = time.monotonic() + _LAST_SECONDS
        while (left := [user for user in self.users if user.has_more]) and (now := time.monotonic()) < until:
            poll = select.poll()
            for user in left:
                poll.register(user.connection, select.POLLOUT)
            poll.poll(int((until - now) * 1000) + 1)
            for user in left:
                user.flush()
            self._forget_closed()
        for user in self.users:
            user.close()
        self.users.clear()
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if len(self.users) >= _MAX_USERS:
            connection.close()
        else:
            self.users.append(User(connection))

    def _receive(self, user: User) -> None:
        while not user.closed and len(self._pending) < _MAX_PENDING_INPUT:
            message = user.receive()
            if message is None:
                return
            kind, data = message[:1], message[1:]
            if kind == OPEN and len(data) == 2:
                user.wants_output = bool(data[1])
                user.show(bytes(self._recent) if data[0] else b"")
                if self._exit_code is not None:
                    user.end(self._exit_code)
            elif kind == INPUT:
                if not self._input_ended:
                    self._pending += data
            elif kind == END_OF_INPUT:
                # The end of one user's input is not that of the terminal, which others may attach to.
                self._input_ended = self._input_ended or not self.terminal
            elif kind == SIZE and len(data) == 4:
                self._resize(user, *struct.unpack("!HH", data))

    def _resize(self, user: User, rows: int, columns: int) -> None:
        self.size = rows, columns
        if not self.terminal or self._input is None:
            return
        if not user.sized:
            # A full-screen program draws itself for a new user only when the size changes.
            user.sized = True
            set_size(self._input, rows + 1 if rows < _MAX_ROWS else rows - 1, columns)
        set_size(self._input, rows, columns)

    def _write_input(self) -> None:
        while self._pending and self._input is not None:
            try:
                written = os.write(self._input, self._pending[:PIECE_BYTES])
            except BlockingIOError:
                return
            except OSError:  # the process has closed its input
                self._close_input()
                self._input_ended = True
                self._pending.clear()
                return
            del self._pending[:written]
        if self._input_ended:
            self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None

    def _forget_closed(self) -> None:
        self.users = [user for user in self.users if not user.closed]


class User:
    """An attached user. Output is kept until the user reads it."""

    def __init__(self, connection: socket) -> None:
        self.connection = connection
        self.pending = bytearray()
        self.wants_output = False
        self.sized = False
        self.stalled_until = 0.0
        self.closed = False
        self._exit_code: int | None = None

    @property
    def has_more(self) -> bool:
        """Output or the exit code is still to be sent."""
        return bool(self.pending) or self._exit_code is not None

    def receive(self) -> bytes | None:
        """Return a message; None if there is none now, or the user has left."""
        try:
            message = self.connection.recv(PIECE_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            self.close()
        return message or None

    def show(self, data: bytes) -> None:
        if self.wants_output and self._exit_code is None:
            if not self.pending:
                self._progressed()
            self.pending += data
            self.flush()

    def end(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self.flush()

    def flush(self) -> None:
        """Send pending output, then the exit code."""
        try:
            while self.pending and not self.closed:
                piece = self.pending[:PIECE_BYTES]
                self.connection.send(OUTPUT + piece)
                del self.pending[: len(piece)]
                self._progressed()
            if self._exit_code is not None and not self.closed:
                self.connection.send(EXIT + str(self._exit_code).encode())
                self.close()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.pending.clear()
            self.connection.close()

    def _progressed(self) -> None:
        self.stalled_until = time.monotonic() + _STALLED_SECONDS


def _listen(folder: str, name: str) -> socket:
    # Imported here: most tasks have no console, and the import takes a good part of a supervisor's start.
    import socket

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # By descriptor, since the path of a socket may have at most 107 bytes.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
    listener.listen(_MAX_USERS)
    listener.setblocking(False)
    return listener
