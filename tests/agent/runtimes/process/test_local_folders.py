"""A task works in the submitter's folder only if it is that very folder and the submitter's own user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from mooring.agent.runtimes.process.identity import Identity
from mooring.agent.runtimes.process.local_folders import LocalFolderRefused, checked
from mooring.wire.agents.desired_tasks import LocalFolderSpec
from tests.agent.builders import order

BOOT = "0b7c"
UID = 1000


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not below /tmp, which is private to every task.
    with TemporaryDirectory(dir="/var/lib") as name:
        yield Path(name)


def spec(folder: Path) -> LocalFolderSpec:
    found = folder.stat()
    return LocalFolderSpec(folder=str(folder), uid=UID, boot_id=BOOT, device=found.st_dev, inode=found.st_ino)


def worked_in(local: LocalFolderSpec | None, uid: int | None = None) -> Path | None:
    identity = Identity(uid, 0, (), "somebody")
    return checked(msgspec.structs.replace(order(), local_folder=local), identity, UID, BOOT)


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="/var/lib is root's")


@needs_root
def test_the_same_folder_of_the_same_user_is_used(folder: Path):
    assert worked_in(spec(folder)) == folder
    assert worked_in(spec(folder), uid=UID) == folder
    assert worked_in(None) is None


@needs_root
@pytest.mark.parametrize("other", [{"uid": UID + 1}, {"boot_id": "ffff"}, {"inode": 1}, {"folder": "/nonexistent"}])
def test_another_user_machine_or_folder_is_refused(folder: Path, other: dict[str, object]):
    with pytest.raises(LocalFolderRefused):
        worked_in(msgspec.structs.replace(spec(folder), **other))


@needs_root
def test_a_task_of_another_user_than_the_submitter_is_refused(folder: Path):
    with pytest.raises(LocalFolderRefused, match="uid 200001"):
        worked_in(spec(folder), uid=200_001)


def test_a_folder_that_every_task_has_for_itself_is_refused():
    with pytest.raises(LocalFolderRefused, match="temporary"):
        worked_in(spec(Path("/tmp")))


def test_a_refusal_does_not_say_which_paths_a_root_agent_finds():
    said = set()
    for path in ("/etc", "/etc/passwd", "/tmp", "/nonexistent"):
        with pytest.raises(LocalFolderRefused) as refused:
            worked_in(LocalFolderSpec(folder=path, uid=UID, boot_id=BOOT, device=0, inode=0))
        said.add(refused.value.message.replace(path, "PATH"))
    assert len(said) == 1
