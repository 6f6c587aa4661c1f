"""Containers from what was typed: what can be said of them in a few words; the rest is for files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mooring.cli.requests import build
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.containers import MountRequest, ProbeRequest, VolumeRequest


def volumes_and_mounts(written: Iterable[str] | None) -> tuple[list[VolumeRequest], list[MountRequest]]:
    """`NAME:/path[:ro]` is a volume of the project, `/folder:/path[:ro]` a folder of the node."""
    from mooring.wire.containers import MountRequest, VolumeRequest

    volumes: dict[str, VolumeRequest] = {}
    mounts = []
    for text in written or ():
        source, *rest = text.split(":")
        if len(rest) not in (1, 2) or rest[1:] not in ([], ["ro"], ["rw"]):
            raise InvalidInput(f"--volume {text[:60]!r}: write NAME:/path, NAME:/path:ro, or /folder:/path")
        if source not in volumes:
            volumes[source] = (
                build(VolumeRequest, name=f"folder-{len(volumes)}", kind="host", path=source)
                if source.startswith("/")
                else build(VolumeRequest, name=source, kind="named")
            )
        mounts.append(
            build(MountRequest, volume=volumes[source].name, path=rest[0], read_only=rest[1:] == ["ro"] or None)
        )
    return list(volumes.values()), mounts


def secret_files(written: Iterable[str] | None) -> dict[str, str]:
    """`NAME[=FILE]` texts: names of secrets by the file that each is found in."""
    result = {}
    for text in written or ():
        name, _, file = text.partition("=")
        result[file or name] = name
    return result


def ready_http(written: str) -> ProbeRequest:
    """`PORT[/path]`."""
    from mooring.wire.containers import ProbeRequest

    port, _, path = written.partition("/")
    if not port.isdecimal():
        raise InvalidInput(f"--ready-http {written[:60]!r}: write PORT or PORT/path, such as 8080/healthz")
    return build(ProbeRequest, port=int(port[:6]), path=f"/{path}")
