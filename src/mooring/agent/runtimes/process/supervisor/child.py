"""Start a process of a task: in its namespaces, as the tenant's user, without privileges, with limits."""

# ruff: noqa: PTH110, PTH123
from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
from contextlib import contextmanager

from mooring.agent.runtimes.process.supervisor import console, init, privileges

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from mooring.agent.runtimes.process.supervisor.record import ContainerSpec, TaskSpec

_OPEN_FILES = 65536
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_TERMINAL = "xterm-256color"


class StartFailed(Exception):
    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason


class Started:
    """A started command. `init`: PID 1 of its namespaces, which is waited for if there is one."""

    def __init__(self, pid: int, streams: Streams, init: init.Init | None) -> None:
        self.pid = pid
        self.output = streams.output
        self.input = streams.input
        self.init = init


class Streams:
    """The standard streams of a command: a terminal, or pipes; without a console its input is empty.

    `output` and `input` are the supervisor's ends, the others the command's.
    """

    def __init__(self, task: TaskSpec, container: ContainerSpec, size: tuple[int, int]) -> None:
        self.terminal = container["terminal"]
        self.input: int | None = None
        if self.terminal:
            self.output, self.output_end = os.openpty()
            self.input, self.input_end = os.dup(self.output), os.dup(self.output_end)
            console.set_size(self.output, *size)
            if task["uid"] is not None:
                os.fchown(self.output_end, task["uid"], task["gid"])
            return
        self.output, self.output_end = os.pipe2(os.O_CLOEXEC)
        if container["stdin"]:
            self.input_end, self.input = os.pipe2(os.O_CLOEXEC)
        else:
            self.input_end = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def become_standard(self) -> None:
        """Make them the standard streams of this process, which leads its session."""
        for source, target in ((self.input_end, 0), (self.output_end, 1), (self.output_end, 2)):
            os.dup2(source, target)
        if self.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def close_ends(self) -> None:
        os.close(self.input_end)
        os.close(self.output_end)

    def close(self) -> None:
        os.close(self.output)
        if self.input is not None:
            os.close(self.input)


def start(task: TaskSpec, container: ContainerSpec, size: tuple[int, int] = (24, 80)) -> Started:
    """Start the container's command with its streams; StartFailed contains the reason of a failure.

    `size`: rows and columns of its terminal.
    """
    with _doing("cannot open the streams of the process"):
        streams = Streams(task, container, size)
    failure, failure_end = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    program = syscall_filter(task)
    first: init.Init | None = None
    if task["namespaces"]:

        def run() -> NoReturn:
            _become(task, container, program, streams, failure_end, parent=1)

        def refuse(error: Exception) -> NoReturn:
            report_failure(failure_end, StartFailed(_NOT_EXECUTABLE, f"cannot isolate the process: {_said(error)}"))

        first = init.spawn(
            task, container["tmpfs_bytes"], [streams.input_end, streams.output_end, failure_end], run, refuse
        )
        pid = first.pid
    else:
        pid = os.fork()
        if pid == 0:
            _become(task, container, program, streams, failure_end, parent=supervisor)
    streams.close_ends()
    os.close(failure_end)
    # The pipe is closed by the exec of the command; data in it is the reason of a failure.
    with os.fdopen(failure, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    if first is not None:
        first.started()
    if text:
        streams.close()
        if pid:
            os.waitpid(pid, 0)
        if first is not None:
            os.close(first.status)
        code, _, reason = text.partition(" ")
        raise StartFailed(int(code), reason)
    os.set_blocking(streams.output, False)
    return Started(_first_child(pid) if first is not None else pid, streams, first)


def _first_child(pid: int) -> int:
    """Return the command's pid in the supervisor's namespace; that of PID 1 if it is gone or unknown."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError):
        return pid


def syscall_filter(task: TaskSpec) -> bytes | None:
    """Return the seccomp program, read before the namespaces are entered, where its file may be hidden."""
    if task["syscall_filter"] is None:
        return None
    with _doing("cannot read the filter of system calls"), open(task["syscall_filter"], "rb") as file:
        return file.read()


def _become(
    task: TaskSpec, container: ContainerSpec, program: bytes | None, streams: Streams, failure: int, parent: int
) -> NoReturn:
    """Become the command in the forked child, or report why not."""
    try:
        os.setsid()
        streams.become_standard()
        become_task_process(task, container, parent, program)
        environment = container["environment"]
        execute(container, container["command"], terminal_environment(environment) if streams.terminal else environment)
    except StartFailed as failed:
        report_failure(failure, failed)
    except Exception as error:
        report_failure(failure, StartFailed(_NOT_EXECUTABLE, f"cannot prepare the process: {_said(error)}"))


def become_task_process(
    task: TaskSpec, container: ContainerSpec, parent: int, program: bytes | None, *, chroot_to: str | None = None
) -> None:
    """Become a process of the task: its cgroup, limits and user, without privileges; in `chroot_to` if given.

    The process ends with its parent.
    """
    with _doing("cannot prepare the process"):
        _reset_signals()
        if container["cgroup"] is not None:
            _write(f"{container['cgroup']}/cgroup.procs", "0")
        _limit(container)
        last_capability = privileges.last_capability()
        if chroot_to is not None:
            os.chroot(chroot_to)
    if task["uid"] is not None:
        with _doing(f"cannot become user {task['uid']}"):
            privileges.change_user(task["uid"], task["gid"], task["groups"], last_capability)
    with _doing("cannot drop privileges"):
        privileges.drop()
        # The parent may have died since the fork, and would not kill this process any more.
        privileges.die_with_parent()
    if os.getppid() != parent:
        os._exit(_NOT_EXECUTABLE)
    os.umask(0o022)
    if program is not None:
        with _doing("cannot filter system calls"):
            privileges.filter_system_calls(program)


def execute(container: ContainerSpec, command: list[str], environment: dict[str, str]) -> NoReturn:
    with _doing(f"cannot enter the working folder {container['folder']!r}"):
        os.chdir(container["folder"])
    with _doing(f"cannot start {command[0]!r}"):
        _execute(command, environment)
    raise AssertionError


def terminal_environment(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment of a process with a terminal."""
    return {"TERM": _TERMINAL, **environment}


def report_failure(failure: int, failed: StartFailed) -> NoReturn:
    """Report to the parent why the process could not be started."""
    os.write(failure, f"{failed.exit_code} {failed.reason}".encode("utf-8", "replace")[:4000])
    os._exit(failed.exit_code)


@contextmanager
def _doing(what: str) -> Iterator[None]:
    """Turn an error in the block into StartFailed with this description."""
    try:
        yield
    except Exception as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        raise StartFailed(code, f"{what}: {_said(error)}") from error


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute the command, searched for as by a shell.

    Not `os.execvpe`, which imports modules: this user may not be able to read Python's files.
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
            # Permission denied for a folder does not mean that the program is in it.
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
        # Data rather than address space: Go, Java and CUDA reserve far more addresses than they use.
        _lower(resource.RLIMIT_DATA, container["memory_bytes"])
    # The OOM score of the supervisor is low, that of the task depends on its quality. Lowering a score needs root.
    if not _written("/proc/self/oom_score_adj", str(container["oom_score"])):
        _written("/proc/self/oom_score_adj", "0")


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _written(path: str, text: str) -> bool:
    try:
        _write(path, text)
    except OSError:
        return False
    return True
