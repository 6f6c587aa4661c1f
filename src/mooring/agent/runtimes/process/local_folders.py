"""Folders of the submitter's machine that a task works in directly, without a copy of its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mooring.agent.runtimes.process.identity import Identity
from mooring.model.errors import MooringError
from mooring.wire.agents.desired_tasks import DesiredTask, LocalFolderSpec

_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")
"""Folders that are private to each task."""


class LocalFolderRefused(MooringError):
    """The task cannot work in the submitter's folder."""

    code = "local-folder-refused"


def checked(task: DesiredTask, identity: Identity, agent_uid: int, boot_id: str) -> Path | None:
    """Return the folder that the task works in; None: its own. LocalFolderRefused if it is not the submitter's.

    A submitter who claims another folder or user gains nothing: the task has the permissions of its own user.
    """
    local = task.local_folder
    if local is None:
        return None
    if local.boot_id != boot_id:
        raise _refused(f"this node is not the machine that has {local.folder}")
    uid = agent_uid if identity.uid is None else identity.uid
    if local.uid != uid:
        raise _refused(f"the task runs as user {identity.user_name} (uid {uid}), and the submitter has uid {local.uid}")
    if not _is_given(local):
        # A root agent finds everything, and no submitter may learn from it which paths exist.
        raise _refused(f"{local.folder} is not the same folder on this node")
    if any(f"{os.path.realpath(local.folder)}/".startswith(f"{folder}/") for folder in _PRIVATE):
        raise _refused(f"{local.folder} is in a folder for temporary files, which is private to each task")
    return Path(local.folder)


def _is_given(local: LocalFolderSpec) -> bool:
    try:
        found = Path(local.folder).stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) == (local.device, local.inode)


def _refused(reason: str) -> LocalFolderRefused:
    return LocalFolderRefused(f"{reason}; use --upload instead of --here")
