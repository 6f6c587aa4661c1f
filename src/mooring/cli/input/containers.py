"""Container fields from command-line options. Fields that need more than an option are set in files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mooring.cli.input.requests import build
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.workloads.containers import MountRequest, ProbeRequest, VolumeRequest

_TAGGED_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9._-]+(@\S+)?")


def volumes_and_mounts(written: Iterable[str] | None) -> tuple[list[VolumeRequest], list[MountRequest]]:
    """Return the mounts of `NAME:/path[:ro]` (a volume of the project) and `/folder:/path[:ro]` (of the node)."""
    from mooring.wire.workloads.containers import MountRequest, VolumeRequest

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
    """Return the names of secrets by file, from `NAME[=FILE]` texts."""
    result = {}
    for text in written or ():
        name, _, file = text.partition("=")
        result[file or name] = name
    return result


def ready_http(written: str) -> ProbeRequest:
    """Return the HTTP probe of `PORT[/path]`."""
    from mooring.wire.workloads.containers import ProbeRequest

    port, _, path = written.partition("/")
    if not port.isdecimal():
        raise InvalidInput(f"--ready-http {written[:60]!r}: write PORT or PORT/path, such as 8080/healthz")
    return build(ProbeRequest, port=int(port[:6]), path=f"/{path}")


def check_no_image_after(command: list[str]) -> None:
    """Raise InvalidInput if the word after `-i` is probably an image, which `-i` named in early versions."""
    if command[1:2] == ["--"] or (command and _TAGGED_IMAGE.fullmatch(command[0])):
        raise InvalidInput(
            f"-i keeps standard input open and takes no value; to run the image {command[0][:60]!r}, write "
            f"--image {command[0][:60]}"
        )
