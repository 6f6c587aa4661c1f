"""A local user cannot make a root agent write, chown, chmod, mount or delete anything outside the agent's folders."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mooring.agent import folders
from mooring.agent.files.pinned_folders import PinnedFolders
from mooring.agent.files.safe_files import Folder, UnsafePath, _entries
from mooring.agent.node.volumes import VolumeFolders
from mooring.agent.runtimes.container import task_paths
from mooring.agent.runtimes.container.task_paths import TaskPaths
from mooring.agent.runtimes.process.identity import Identity
from mooring.agent.runtimes.process.supervisor import record
from mooring.agent.runtimes.process.supervisor.output import RotatedFile
from mooring.model.errors import MooringError
from mooring.wire.agents.desired_tasks import RemovedVolume, Secret, VolumeSpec
from tests.agent.builders import container, order
from tests.security.attacker import UID, act, needs_root, nest, open_folder, swapping
from tests.selection import examples

pytestmark = needs_root

ROUNDS = examples(400)
"""Enough for each race to be won several times by code that checks a path and then uses it."""
TENANT = Identity(UID, UID, (), "attacker")


@pytest.fixture
def top() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture
def root(top: Path) -> Path:
    """The agent's own folder."""
    folder = top / "agent"
    folder.mkdir(mode=0o711)
    return folder


@pytest.fixture
def victim(top: Path) -> Path:
    """A folder of root's with a file, closed to everybody else."""
    folder = top / "victim"
    folder.mkdir(mode=0o700)
    (folder / "shadow").write_text("root's own")
    (folder / "shadow").chmod(0o600)
    return folder


@pytest.fixture
def writable(top: Path) -> Path:
    """A folder that the attacker can write."""
    folder = top / "writable"
    folder.mkdir()
    os.chown(folder, UID, UID)
    return folder


def assert_untouched(victim: Path) -> None:
    for path, mode in ((victim, 0o700), (victim / "shadow", 0o600)):
        found = path.lstat()
        assert (path.name, found.st_uid, stat.S_IMODE(found.st_mode)) == (path.name, 0, mode)
    assert (victim / "shadow").read_text() == "root's own"
    assert [path.name for path in victim.iterdir()] == ["shadow"]


# Secrets


@pytest.fixture
def node_id() -> Iterator[UUID]:
    node_id = uuid4()
    yield node_id
    PinnedFolders(node_id).clean_up(lambda _: False)
    for parent in ("/run", "/dev/shm"):
        for found in Path(parent).glob(f"mooring-{node_id}*"):
            subprocess.run(["rm", "-rf", str(found)], check=True)


def containers_of(root: Path, node_id: UUID, *allowed: Path) -> TaskPaths:
    return task_paths.make(root, node_id, VolumeFolders(root, allowed))


SECRET = order(
    containers=[container("true", image="image", secrets={"shadow": "token"})],
    secrets=[Secret(name="token", value=b"attacker::0:0::/:/bin/sh")],
)


def test_a_secret_is_not_written_through_a_link_in_a_foreign_folder(root: Path, victim: Path, node_id: UUID):
    planted = Path("/dev/shm", f"mooring-{node_id}", SECRET.task_id.hex, "main")
    act(f"mkdir -p {planted} && ln -s {victim}/shadow {planted}/shadow")
    found = containers_of(root, node_id)
    found.write_secrets(SECRET)
    assert_untouched(victim)
    written = found.secrets(SECRET.task_id, "main")
    assert (written / "shadow").read_bytes() == SECRET.secrets[0].value
    for above in (written.parent.parent, written.parent):
        assert (above.stat().st_uid, stat.S_IMODE(above.stat().st_mode)) == (0, 0o700)
    found.remove_private(SECRET.task_id)
    assert not written.parent.exists()
    assert (planted / "shadow").is_symlink()


@pytest.mark.parametrize(
    "plant", ["ln -s {victim} {name}", "touch {name}", "mkdir {name}", "mkfifo {name}"], ids=lambda each: each[:6]
)
def test_a_foreign_folder_cannot_block_the_folder_for_secrets(root: Path, victim: Path, node_id: UUID, plant: str):
    act(plant.format(victim=victim, name=f"/dev/shm/mooring-{node_id}"))
    for _ in range(2):
        found = containers_of(root, node_id)
        found.write_secrets(SECRET)
        assert (found.secrets(SECRET.task_id, "main") / "shadow").read_bytes() == SECRET.secrets[0].value
    found.remove_private(SECRET.task_id)
    assert not found.secrets(SECRET.task_id, "main").exists()
    assert_untouched(victim)


def test_a_folder_for_secrets_that_others_can_write_is_not_used(root: Path, node_id: UUID):
    loose = Path("/dev/shm", f"mooring-{node_id}")
    loose.mkdir()
    loose.chmod(0o777)
    found = containers_of(root, node_id)
    found.write_secrets(SECRET)
    assert not found.secrets(SECRET.task_id, "main").is_relative_to(loose)
    assert not any(loose.iterdir())


# Work folders


def prepared(root: Path) -> folders.Folders:
    return folders.prepare(root, uuid4(), root / "shared", agent_uid=0)


def test_a_work_folder_that_is_made_again_holds_nothing_that_was_planted(root: Path, victim: Path):
    layout, task_id = prepared(root), uuid4()
    work = layout.create_work(task_id, TENANT)
    act(f"rmdir {work}/tmp && ln -s {victim} {work}/tmp && ln -s {victim}/shadow {work}/.profile")
    assert layout.create_work(task_id, TENANT) == work
    assert [path.name for path in work.iterdir()] == ["tmp"]
    for folder in (work, work / "tmp"):
        found = folder.lstat()
        assert stat.S_ISDIR(found.st_mode)
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (UID, 0o700)
    assert_untouched(victim)


def test_measuring_a_work_folder_counts_nothing_behind_a_link(root: Path, victim: Path):
    (victim / "shadow").write_bytes(bytes(8 * 1024 * 1024))
    work = prepared(root).create_work(uuid4(), TENANT)
    act(f"mkdir {work}/folder && ln -s {victim} {work}/link")
    with swapping(work / "folder", work / "link", victim):
        sizes = {folders.size_bytes(work) for _ in range(ROUNDS * 10)}
    assert max(sizes) < 1024 * 1024


def test_removing_a_work_folder_deletes_nothing_behind_a_link(root: Path, victim: Path, writable: Path):
    work = prepared(root).create_work(uuid4(), TENANT)
    act(f"mkdir {work}/folder && ln -s {victim} {writable}/link")
    with swapping(work / "folder", writable / "link", victim):
        for _ in range(ROUNDS * 5):
            folders.remove(work)
            assert_untouched(victim)
            if not work.exists():
                work.mkdir()
                os.chown(work, UID, UID)


def test_a_folder_moved_out_of_the_tree_that_is_removed_leads_nowhere_else(root: Path, victim: Path, writable: Path):
    """Names of the tree would be looked for in the folders above the one that it was moved to."""
    work = prepared(root).create_work(uuid4(), TENANT)
    act(f"rmdir {work}/tmp; mkdir -p {work}/victim/y {work}/deep/y/z {writable}/deep && touch {work}/deep/y/z/file")

    def remove(descriptor: int) -> None:
        for entry in _entries(descriptor):
            entry.remove()
            if entry.name == "file":
                act(f"mv {work}/deep/y {writable}/y")

    with Folder.open(work) as folder, pytest.raises(UnsafePath, match="moved"):
        remove(folder.descriptor)
    assert_untouched(victim)
    folders.remove(work)
    assert not work.exists()


@pytest.mark.slow
def test_a_tree_deeper_than_the_limits_on_open_files_and_recursion_is_removed(root: Path):
    work = prepared(root).create_work(uuid4(), TENANT)
    depth = 5000
    nest(work, depth)
    assert folders.size_bytes(work) >= depth * 4096
    folders.remove(work)
    assert not work.exists()


# Volumes


def test_no_link_on_the_path_to_a_shared_volume_is_followed(root: Path, victim: Path, writable: Path):
    volume = VolumeSpec(name="all", kind="shared", volume_id=uuid4(), path=str(writable))
    project = uuid4()
    target = victim / str(project) / str(volume.volume_id)
    target.mkdir(parents=True, mode=0o700)
    (target / "file").touch()
    act(f"mkdir {writable}/volumes && ln -s {victim} {writable}/link")
    found = VolumeFolders(root, (writable,))
    removed = RemovedVolume(volume_id=volume.volume_id or uuid4(), project_id=project, path=str(writable))
    with swapping(writable / "volumes", writable / "link", victim):
        for _ in range(ROUNDS):
            with pytest.raises(MooringError, match="volume-refused"):
                found.open(project, volume)
            with pytest.raises(MooringError, match="volume-refused"):
                found.remove(removed)
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert (target / "file").exists()


def test_a_host_folder_swapped_for_a_link_is_opened_as_itself_or_not_at_all(root: Path, victim: Path, writable: Path):
    act(f"mkdir {writable}/folder && touch {writable}/folder/mine && ln -s {victim} {writable}/link")
    found, project = VolumeFolders(root, (writable,)), uuid4()
    volume = VolumeSpec(name="disk", kind="host", path=f"{writable}/folder")
    opened = 0
    with swapping(writable / "folder", writable / "link", victim):
        for _ in range(ROUNDS * 10):
            with suppress(MooringError), found.open(project, volume) as folder:
                assert os.listdir(folder.descriptor) == ["mine"]  # noqa: PTH208
                opened += 1
    assert opened


def test_a_host_folder_swapped_for_a_link_is_mounted_as_itself_or_not_at_all(
    root: Path, victim: Path, writable: Path, node_id: UUID
):
    """The engine resolves the path that it is given later, and again at each start of the container."""
    act(f"mkdir {writable}/folder && touch {writable}/folder/mine && ln -s {victim} {writable}/link")
    volume = VolumeSpec(name="disk", kind="host", path=f"{writable}/folder")
    found = containers_of(root, node_id, writable)
    mounted = 0
    with swapping(writable / "folder", writable / "link", victim):
        for _ in range(ROUNDS):
            task = order(containers=[container("true", image="image")], volumes=[volume])
            try:
                path = found.make_volumes(task)["disk"]
            except MooringError:
                continue
            mounted += 1
            # What the engine would find, however late it looks.
            assert [{each.name for each in path.iterdir()} for _ in range(20)] == [{"mine"}] * 20
            found.remove_private(task.task_id)
            assert not path.exists()
    assert mounted
    assert (writable / "folder" / "mine").exists() or (writable / "link" / "mine").exists()


def test_pins_of_tasks_that_are_not_known_any_more_are_released_and_delete_nothing(writable: Path, node_id: UUID):
    (writable / "file").write_text("kept")
    pins, known, lost = PinnedFolders(node_id), uuid4(), uuid4()
    with Folder.open(writable) as folder:
        paths = [pins.pin(task_id, "disk", folder) for task_id in (known, lost)]
    PinnedFolders(node_id).clean_up(known.__eq__)
    assert [path.exists() for path in paths] == [True, False]
    assert (paths[0] / "file").read_text() == "kept"
    pins.release(known)
    assert not paths[0].exists()
    assert (writable / "file").read_text() == "kept"


# The agent's own folder


@pytest.mark.parametrize(
    ("owner_uid", "mode", "above", "reason"),
    [
        (UID, 0o700, 0o1777, "belongs to uid"),
        (0, 0o777, 0o711, "other users can write"),
        (0, 0o1777, 0o711, "other users can write"),
        (0, 0o711, 0o777, "other users can replace files in"),
    ],
)
def test_a_root_agent_refuses_a_folder_that_others_can_replace(
    top: Path, owner_uid: int, mode: int, above: int, reason: str
):
    folder = top / "above" / "agent"
    folder.mkdir(parents=True)
    os.chown(folder, owner_uid, owner_uid)
    folder.chmod(mode)
    folder.parent.chmod(above)
    with pytest.raises(UnsafePath, match=reason):
        prepared(folder)
    assert not any(folder.iterdir())


def test_a_root_agent_keeps_its_folder_where_only_it_can_replace_it(top: Path):
    folder = top / "above" / "agent"
    folder.mkdir(parents=True, mode=0o711)
    folder.parent.chmod(0o1777)
    (top / "link").symlink_to(folder.parent)
    assert prepared(top / "link" / "agent").tasks == folder / "tasks"


def test_a_root_agent_follows_no_link_to_its_folder_that_others_can_replace(top: Path, victim: Path):
    shared = top / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    act(f"ln -s {victim} {shared}/data")
    for folder in (shared / "data", shared / "data" / "agent"):
        with pytest.raises(UnsafePath, match=f"{shared}/data belongs to uid {UID}"):
            prepared(folder)
    assert_untouched(victim)


def test_missing_folders_above_the_agents_are_made_closed(top: Path):
    folder = top / "one" / "two" / "agent"
    assert prepared(folder).tasks == folder / "tasks"
    for made in (folder, folder.parent, folder.parent.parent):
        assert (made.stat().st_uid, stat.S_IMODE(made.stat().st_mode)) == (0, 0o711)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_neither_a_record_nor_a_log_is_written_through_a_link(root: Path, victim: Path, link: object):
    link(victim / "shadow", root / f"state.json.{os.getpid()}.draft")  # type: ignore[operator]
    record.write(str(root / "state.json"), {"phase": "running"})
    link(victim / "shadow", root / "output-0.log")  # type: ignore[operator]
    with pytest.raises(OSError, match=r"Too many levels|not a file of the agent"):
        RotatedFile(str(root / "output-0.log"), 100, 2)
    with Folder.open(root) as folder, pytest.raises(FileExistsError):
        folder.write("output-0.log", b"attacker", 0o666)
    (root / "output-0.log").unlink()
    assert_untouched(victim)


def test_links_in_a_circle_are_no_folder_of_the_node(root: Path, writable: Path):
    act(f"ln -s {writable}/b {writable}/a && ln -s {writable}/a {writable}/b")
    with pytest.raises(MooringError, match="volume-missing"):
        VolumeFolders(root, (writable,)).open(uuid4(), VolumeSpec(name="disk", kind="host", path=f"{writable}/a"))


@pytest.mark.parametrize("name", ["", ".", "..", "../victim", "a/b", "/etc"])
def test_a_name_leads_nowhere_else(root: Path, victim: Path, name: str):
    with Folder.open(root) as folder:
        for act_on in (folder.enter, folder.make, folder.make_shared, folder.remove, lambda n: folder.write(n, b"", 0)):
            with pytest.raises(UnsafePath):
                act_on(name)
    assert_untouched(victim)
