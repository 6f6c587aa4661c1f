"""The folders of volumes on a node: made by ids, closed to others, host folders only where the owner allows them."""

import stat
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mooring.agent.node.volumes import VolumeFolders
from mooring.model.errors import MooringError
from mooring.wire.agents.agent_protocol import Desired, VolumesGone
from mooring.wire.agents.desired_tasks import RemovedVolume, VolumeSpec
from tests.agent.builders import eventually
from tests.agent.fake_server import FakeServer
from tests.agent.test_agent import make, running

PROJECT = uuid4()


def named() -> VolumeSpec:
    return VolumeSpec(name="data", kind="named", volume_id=uuid4())


def folder_of(folders: VolumeFolders, volume: VolumeSpec, project: UUID = PROJECT) -> Path:
    with folders.open(project, volume) as folder:
        return folder.path


def removed(volume: VolumeSpec) -> RemovedVolume:
    assert volume.volume_id is not None
    return RemovedVolume(volume_id=volume.volume_id, project_id=PROJECT, path=volume.path)


def test_a_volume_is_found_by_its_id_and_closed_to_all_but_the_agent(tmp_path: Path):
    folders, volume = VolumeFolders(tmp_path), named()
    folder = folder_of(folders, volume)
    assert folder == tmp_path / "volumes" / str(PROJECT) / str(volume.volume_id)
    assert [stat.S_IMODE(above.stat().st_mode) for above in list(folder.parents)[:2]] == [0o700, 0o700]
    (folder / "file").write_text("kept")
    assert (folder_of(folders, volume) / "file").read_text() == "kept"
    assert not any(folder_of(folders, volume, uuid4()).iterdir())


def test_a_shared_volume_is_in_the_folder_of_its_pool_where_the_node_allows_that(tmp_path: Path):
    root, disk = tmp_path / "agent", tmp_path / "disk"
    root.mkdir()
    disk.mkdir()
    volume = VolumeSpec(name="all", kind="shared", volume_id=uuid4(), path=str(disk))
    with pytest.raises(MooringError, match="exposes no folder that contains") as refused:
        folder_of(VolumeFolders(root), volume)
    assert refused.value.code == "host-path-refused"
    one, other = VolumeFolders(root, (disk,)), VolumeFolders(tmp_path / "another", (disk,))
    folder = folder_of(one, volume)
    assert folder.is_relative_to(disk)
    assert folder_of(other, volume) == folder
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    one.remove(removed(volume))
    assert not folder.exists()
    other.remove(removed(volume))


def test_a_link_on_the_path_to_a_volume_is_not_followed(tmp_path: Path):
    root, disk, secret = (tmp_path / name for name in ("agent", "disk", "secret"))
    volume = VolumeSpec(name="all", kind="shared", volume_id=uuid4(), path=str(disk))
    target = secret / str(volume.volume_id)
    for folder in (root, disk / "volumes", target):
        folder.mkdir(parents=True)
    target.chmod(0o700)
    (disk / "volumes" / str(PROJECT)).symlink_to(secret)
    folders = VolumeFolders(root, (disk,))
    for refused in (lambda: folder_of(folders, volume), lambda: folders.remove(removed(volume))):
        with pytest.raises(MooringError, match="volume-refused"):
            refused()
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_a_folder_of_the_node_is_shown_only_if_it_really_is_where_the_owner_allows(tmp_path: Path):
    root, allowed, secret = tmp_path / "agent", tmp_path / "allowed", tmp_path / "secret"
    for folder in (root, allowed / "sub", secret):
        folder.mkdir(parents=True)
    (allowed / "out").symlink_to(secret)
    (allowed / "in").symlink_to(allowed / "sub")
    (tmp_path / "also").symlink_to(allowed)
    (allowed / "file").touch()
    folders = VolumeFolders(root, (tmp_path / "also", root.parent / "agent"))

    def shown(path: str) -> Path:
        return folder_of(folders, VolumeSpec(name="disk", kind="host", path=path))

    assert shown(f"{allowed}/sub") == shown(f"{allowed}/in") == shown(f"{tmp_path}/also/sub") == allowed / "sub"
    for path, code in (
        (f"{allowed}/out", "host-path-refused"),
        (f"{allowed}/../secret", "host-path-refused"),
        (f"{allowed}-not", "host-path-refused"),
        ("/", "host-path-refused"),
        (f"{allowed}/file", "volume-missing"),
        (f"{allowed}/nothing", "volume-missing"),
        (str(root), "volume-refused"),
    ):
        with pytest.raises(MooringError) as refused:
            shown(path)
        assert (path, refused.value.code) == (path, code)


async def test_an_agent_deletes_only_the_volumes_that_it_is_ordered_to(server: FakeServer, node_folder: Path):
    folders = VolumeFolders(node_folder)
    async with running(make(server, node_folder)) as agent:
        goes, stays, elsewhere = named(), named(), VolumeSpec(name="x", kind="shared", volume_id=uuid4(), path="/etc")
        content = folder_of(folders, goes) / "deep" / "file"
        content.parent.mkdir()
        content.touch()
        stored = folder_of(folders, stays)
        orders = Desired(term=1, tasks=[], removed_volumes=[removed(goes), removed(elsewhere)])
        await server.say(orders)
        await eventually(lambda: server.of(VolumesGone), "the end of the volume")
        assert [message.volumes for message in server.of(VolumesGone)] == [[goes.volume_id]]
        assert stored.exists()
        assert not content.parent.parent.exists()
        await server.say(Desired(term=0, tasks=[], removed_volumes=[removed(stays)]))
        await server.close_channels()
        # It has its first orders then, which are in place of those before.
        await eventually(lambda: server.connections == 2 and agent.connected.is_set())
        await server.say(orders)
        await eventually(lambda: len(server.of(VolumesGone)) == 2, "the same word on the next connection")
        assert stored.exists()
