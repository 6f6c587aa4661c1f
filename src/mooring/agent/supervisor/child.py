"""Start one process of a task: its own session, the tenant's user, no privileges, limits, output into a pipe."""

# ruff: noqa: PTH110, PTH123
from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from mooring.agent.supervisor.record import ContainerSpec, TaskSpec

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

_OPEN_FILES = 65536
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126

_libc = ctypes.CDLL(None, use_errno=True)


class StartFailed(Exception):
    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason


def become_subreaper() -> None:
    """Whatever is orphaned below this process becomes its child, so that nothing leaves the task by daemonising."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def start(task: TaskSpec, container: ContainerSpec) -> tuple[int, int]:
    """The pid of the started command and the descriptor to read its output from, or StartFailed."""
    output, output_end = os.pipe2(os.O_CLOEXEC)
    failure, failure_end = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(task, container, output_end, failure_end, supervisor)
    os.close(output_end)
    os.close(failure_end)
    # The pipe closes by itself when the command takes over; until then anything in it says what went wrong.
    with os.fdopen(failure, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    if text:
        os.close(output)
        os.waitpid(pid, 0)
        code, _, reason = text.partition(" ")
        raise StartFailed(int(code), reason)
    os.set_blocking(output, False)
    return pid, output


def _become(task: TaskSpec, container: ContainerSpec, output: int, failure: int, supervisor: int) -> NoReturn:
    """The forked half: turn into the command, or say why not."""
    try:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        take_on(task, container, supervisor)
        execute(container, container["command"], container["environment"])
    except StartFailed as failed:
        tell(failure, failed)
    except Exception as error:
        tell(failure, StartFailed(_NOT_EXECUTABLE, f"cannot prepare the process: {_said(error)}"))


def take_on(task: TaskSpec, container: ContainerSpec, parent: int, *, inside: str | None = None) -> None:
    """Become a process of the task: its cgroup and limits, its user, no privileges; `inside`: it sees this folder only.

    Ends with its parent.
    """
    with _doing("cannot prepare the process"):
        _reset_signals()
        if container["cgroup"] is not None:
            _write(f"{container['cgroup']}/cgroup.procs", "0")
        _limit(container)
        last_capability = _last_capability()
        if inside is not None:
            os.chroot(inside)
    if task["uid"] is not None:
        with _doing(f"cannot become user {task['uid']}"):
            _change_user(task["uid"], task["gid"], task["groups"], last_capability)
    with _doing("cannot give up privileges"):
        _drop_privileges()
        # The parent may have died since the fork; nobody would end this process then.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_NOT_EXECUTABLE)
    os.umask(0o022)


def execute(container: ContainerSpec, command: list[str], environment: dict[str, str]) -> NoReturn:
    with _doing(f"cannot enter the working folder {container['folder']!r}"):
        os.chdir(container["folder"])
    with _doing(f"cannot start {command[0]!r}"):
        _execute(command, environment)
    raise AssertionError


def tell(failure: int, failed: StartFailed) -> NoReturn:
    """Say to whoever started this process why it has not become what it should."""
    os.write(failure, f"{failed.exit_code} {failed.reason}".encode("utf-8", "replace")[:4000])
    os._exit(failed.exit_code)


@contextmanager
def _doing(what: str) -> Iterator[None]:
    """What fails in the block is told as the failure of this."""
    try:
        yield
    except Exception as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        raise StartFailed(code, f"{what}: {_said(error)}") from error


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Become the command, searched for as a shell does.

    Not `os.execvpe`: it imports as it goes, and this user may not be able to read Python's own files.
    """
    name = command[0]
    if "/" in name or not name:
        os.execve(name, command, environment)
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in environment.get("PATH", "").split(":"):
        path = f"{folder or '.'}/{name}"
        try:
            os.execve(path, command, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            # A folder that may not be searched does not mean that the program is in it.
            if os.path.exists(path):
                problem = error
    raise problem


def _said(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text[:1].lower() + text[1:]


def _reset_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limit(container: ContainerSpec) -> None:
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if container["processes"] is not None:
        _lower(resource.RLIMIT_NPROC, container["processes"])
    if container["memory_bytes"] is not None:
        # Data rather than address space: Go, Java and CUDA reserve far more addresses than they will ever fill.
        _lower(resource.RLIMIT_DATA, container["memory_bytes"])
    # The supervisor is spared when memory runs out, the task as its quality says; without root none can be spared.
    if not _written("/proc/self/oom_score_adj", str(container["oom_score"])):
        _written("/proc/self/oom_score_adj", "0")


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def _change_user(uid: int, gid: int, groups: list[int], last: int) -> None:
    for capability in range(last + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _drop_privileges() -> None:
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    arguments = [ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)]
    if _libc.prctl(option, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _written(path: str, text: str) -> bool:
    try:
        _write(path, text)
    except OSError:
        return False
    return True
