"""Mooring processes that start fast: forks of a process that has already imported Mooring and loaded its kernels.

A server that starts as a program spends two seconds of CPU time on that, and the system tests start hundreds of them. A
fork differs from a program only in /proc, which shows the command line and the environment of the fork server.
"""

from __future__ import annotations

import array
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, TypedDict

from mooring.clock import AHEAD
from mooring.scheduling.compiled import compilation, kernel_cache

# Read when modules are imported, which a fork no longer does.
_READ_AT_IMPORT = frozenset({AHEAD, "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"})
_PRELOADED = (
    "mooring.agent.agent",
    "mooring.cli.app",
    "mooring.cli.commands.operations.serve",
    "mooring.server.composition",
    "alembic.command",
    "grpc.aio",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
)
_LARGEST_REQUEST = 1 << 20
_DESCRIPTOR_BYTES = array.array("i").itemsize
_MAX_DESCRIPTORS = 1 << 20


class _Request(TypedDict):
    argv: list[str]
    environment: dict[str, str]
    folder: str


class ForkedProcess:
    """The part of `subprocess.Popen` that the tests use, for a child of the fork server."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._received(0.0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._received(timeout)) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _received(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout)
            with suppress(BlockingIOError, TimeoutError):
                answer = self._status.recv(64)
                if not answer:
                    raise RuntimeError("the fork server ended")
                self.returncode = int(answer)
                self._status.close()
        return self.returncode


def can_fork(overrides: Mapping[str, str]) -> bool:
    """Return whether a fork behaves like a program that starts with these variables changed."""
    return sys.platform == "linux" and not _READ_AT_IMPORT & overrides.keys()


def launch(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
) -> ForkedProcess:
    """Run a `mooring` command in a fork, in its own session, with nothing on standard input."""
    request = _Request(argv=[program, *arguments], environment=dict(environment), folder=str(Path.cwd()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        files = array.array("i", [out.fileno(), err.fileno(), theirs.fileno()])
        _fork_server().sendmsg([json.dumps(request).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    if not (answer := ours.recv(64)):
        raise RuntimeError("the fork server ended")
    return ForkedProcess(int(answer), ours)


@cache
def _fork_server() -> socket.socket:
    """Start the fork server of this process. It ends when this process does, which closes the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours


def serve(requests: socket.socket) -> None:
    """Fork for every request and report each child's exit code. Return in the child, once it looks like the program."""
    reporters: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready: list[int] = select.select([requests.fileno(), *reporters], [], [])[0]
        for ended in reporters.keys() & ready:
            _report(*reporters.pop(ended))
            os.close(ended)
        if requests.fileno() in ready:
            data, ancillary, _, _ = requests.recvmsg(_LARGEST_REQUEST, socket.CMSG_SPACE(3 * _DESCRIPTOR_BYTES))
            if not data:
                sys.exit()
            out, err, status = array.array("i", ancillary[0][2])
            reporter = socket.socket(fileno=status)
            if (pid := os.fork()) == 0:
                for other in (requests, reporter, *(reporter for _, reporter in reporters.values())):
                    other.close()
                _become(json.loads(data), out, err)
                return
            os.close(out)
            os.close(err)
            reporters[os.pidfd_open(pid)] = pid, reporter
            with suppress(BrokenPipeError):
                reporter.send(b"%d" % pid)


def _report(pid: int, reporter: socket.socket) -> None:
    _, status = os.waitpid(pid, 0)
    with reporter, suppress(BrokenPipeError):
        reporter.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: _Request, out: int, err: int) -> None:
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, _MAX_DESCRIPTORS)
    os.chdir(request["folder"])
    sys.argv = request["argv"]
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()


def _preload() -> None:
    for module in _PRELOADED:
        import_module(module)
    # Without compiled kernels, every server waits for the one process that compiles them.
    if kernel_cache.cache_is_filled():
        compilation.wait()
    gc.collect()
    gc.freeze()


def main() -> None:
    from mooring.cli.app import app

    _preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
    app(prog_name="mooring")


if __name__ == "__main__":
    main()
