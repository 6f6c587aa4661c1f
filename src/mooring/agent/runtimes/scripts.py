"""Scripts that come with a task and run as the command of a container."""

from __future__ import annotations

from mooring.wire.agents.desired_tasks import ContainerSpec

SCRIPT_NAME = "script"
"""Name of a script in its folder of a container task."""
_DEFAULT_INTERPRETER = "/bin/sh"


def script_command(container: ContainerSpec, path: str) -> list[str]:
    """Return the command that runs the container's script at this path, with the arguments of the container's command.

    The interpreter is read from the first line here, as the kernel would: the script may be on a file system from which
    nothing can be executed.
    """
    first = (container.script or "").partition("\n")[0]
    interpreter = first[2:].strip().split(maxsplit=1) if first.startswith("#!") else []
    return [*(interpreter or [_DEFAULT_INTERPRETER]), path, *container.command[1:]]
