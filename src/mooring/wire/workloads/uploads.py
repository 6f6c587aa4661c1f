"""Uploads: the manifest of a folder, its checks, and the requests and answers about it.

A manifest lists the folders, files and symbolic links of an uploaded folder. The content of a file is a list of chunks,
each named by its SHA-256. Client, server and agent use the same checks: a valid manifest names nothing outside of its
folder, and has no other kinds of entries than these three.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast
from uuid import UUID

import msgspec
from pydantic import Field, StringConstraints

from mooring.model.errors import InvalidInput
from mooring.wire.fields import Answer, Request

CHUNK_BYTES = 4 * 1024**2
MAX_MANIFEST_BYTES = 8 * 1024**2
MAX_ENTRIES = 50_000
MAX_DEPTH = 64
"""Maximum components of a path."""
MAX_CHUNKS_PER_REQUEST = 256
MAX_REQUEST_BYTES = 64 * 1024**2
"""Maximum bytes of the chunks in one request."""
TEMPORARY = "tmp"
"""The folder for temporary files in a task's work folder."""
WORKSPACE = "/workspace"
"""The path of the uploaded folder in containers."""
DAMAGED = "upload-damaged"
"""The error code for content that the server has lost."""
NOT_SHARED = "uploads-not-shared"
"""The error code for content that only another server has."""

_MAX_PATH_BYTES = 4096
_MAX_NAME_BYTES = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A folder, file or symbolic link; its path is relative to the uploaded folder."""

    path: str
    kind: Literal["file", "folder", "link"] = "file"
    executable: bool = False
    size: int = 0
    chunks: list[str] = []
    """Digests of its content, in order; all but the last have CHUNK_BYTES."""
    target: str = ""
    """Of a link."""


class Chunk(msgspec.Struct, frozen=True):
    digest: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entries: list[Entry]

    @property
    def size(self) -> int:
        """Total bytes of its files."""
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        return sum(entry.kind == "file" for entry in self.entries)

    def chunks(self) -> list[Chunk]:
        """Return its distinct chunks in order of appearance; requests name them by their position in this list."""
        found: dict[str, int] = {}
        for entry in self.entries:
            for number, digest in enumerate(entry.chunks):
                found.setdefault(digest, min(CHUNK_BYTES, entry.size - number * CHUNK_BYTES))
        return [Chunk(digest, size) for digest, size in found.items()]


class InvalidManifest(InvalidInput):
    code = "invalid-manifest"


_decoder = msgspec.json.Decoder(Manifest)


def encode_manifest(entries: Iterable[Entry]) -> bytes:
    """Return the canonical form: equal folders have equal manifests."""
    return msgspec.json.encode(Manifest(entries=sorted(entries, key=lambda entry: entry.path)))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest; raise InvalidManifest if it is not well-formed or names anything outside of its folder."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise InvalidManifest(f"a manifest has at most {MAX_MANIFEST_BYTES >> 20} MiB; upload fewer files")
    try:
        manifest = _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidManifest(f"not a valid manifest: {error}") from None
    check_manifest(manifest)
    return manifest


def check_manifest(manifest: Manifest) -> None:
    if len(manifest.entries) > MAX_ENTRIES:
        raise _too_many()
    kinds: dict[str, str] = {}
    for entry in manifest.entries:
        _check_path(entry.path)
        if entry.path in kinds:
            raise _wrong(entry, "is there twice")
        kinds[entry.path] = entry.kind
    sizes: dict[str, int] = {}
    for entry in manifest.entries:
        for parent in _parents(entry.path):
            # A folder without an entry of its own is created anyway, so it counts.
            if kinds.setdefault(parent, "folder") != "folder":
                raise _wrong(entry, f"is below {parent[:200]!r}, which is not a folder")
        if len(kinds) > MAX_ENTRIES:
            raise _too_many()
        if entry.path == TEMPORARY and entry.kind != "folder":
            raise _wrong(entry, "is the name of the folder for temporary files in a task; rename it")
        _check_content(entry, sizes)


def _check_content(entry: Entry, sizes: dict[str, int]) -> None:
    if entry.kind == "link":
        _check_target(entry)
    elif entry.target:
        raise _wrong(entry, "has a target but is not a link")
    if entry.kind != "file":
        if entry.size or entry.chunks or entry.executable:
            raise _wrong(entry, "has content but is not a file")
        return
    if not 0 <= entry.size <= 2**62 or len(entry.chunks) != -(-entry.size // CHUNK_BYTES):
        raise _wrong(entry, "has a number of chunks that does not match its size")
    for number, digest in enumerate(entry.chunks):
        if not _DIGEST.fullmatch(digest):
            raise _wrong(entry, "has a chunk whose name is not a SHA-256")
        size = min(CHUNK_BYTES, entry.size - number * CHUNK_BYTES)
        if sizes.setdefault(digest, size) != size:
            raise _wrong(entry, "gives a chunk a different size than another file")


def _check_path(path: str) -> None:
    names = path.split("/")
    if (
        not path
        or "\0" in path
        or any(name in ("", ".", "..") or len(name.encode()) > _MAX_NAME_BYTES for name in names)
        or len(path.encode()) > _MAX_PATH_BYTES
        or len(names) > MAX_DEPTH
    ):
        raise InvalidManifest(f"{path[:200]!r} is not a path inside an uploaded folder")


def leads_out(path: str, target: str) -> bool:
    """Return whether a link may lead out of the folder. `..` may only come first, where it is resolved by real folders;
    the other components may be links, each of which stays inside itself.
    """
    names = target.split("/")
    rises = 0
    while rises < len(names) and names[rises] == "..":
        rises += 1
    return rises > path.count("/") or target.startswith("/") or ".." in names[rises:]


def _check_target(entry: Entry) -> None:
    target = entry.target
    if not target or "\0" in target or len(target.encode()) > _MAX_PATH_BYTES or leads_out(entry.path, target):
        raise _wrong(entry, f"is a link to {target[:200]!r}, which leads out of the uploaded folder")


def _parents(path: str) -> Iterable[str]:
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def _too_many() -> InvalidManifest:
    return InvalidManifest(f"an upload has at most {MAX_ENTRIES} files and folders")


def _wrong(entry: Entry, problem: str) -> InvalidManifest:
    return InvalidManifest(f"{entry.path[:200]!r} {problem}")


def runs(positions: Sequence[int]) -> str:
    """Return positions in the form of a query: `0-3,7`."""
    parts: list[list[int]] = []
    for position in positions:
        if parts and parts[-1][1] + 1 == position:
            parts[-1][1] = position
        else:
            parts.append([position, position])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def positions(text: str, count: int) -> list[int]:
    """Return the positions of a query; raise InvalidInput if they are not ascending positions below `count`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isascii() and first.isdigit() and len(first) < 10) or (
            last and not (last.isascii() and last.isdigit() and len(last) < 10)
        ):
            raise InvalidInput("chunks are named by their positions in the manifest: 0-3,7", code="invalid-chunks")
        begin, end = int(first), int(last or first)
        if begin > end or (found and begin <= found[-1]) or end >= count:
            raise InvalidInput(f"chunks are ascending positions below {count}", code="invalid-chunks")
        if len(found) + end - begin >= MAX_CHUNKS_PER_REQUEST:
            raise InvalidInput(f"a request has at most {MAX_CHUNKS_PER_REQUEST} chunks", code="invalid-chunks")
        found += range(begin, end + 1)
    return found


ChunkPositions = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class LocalFolderRequest(Request):
    """A folder of the submitter's machine that the task uses directly. The node runs the task only if it has this very
    folder, and if the task's OS user is the submitter's."""

    folder: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=_MAX_PATH_BYTES)]
    uid: Annotated[int, Field(ge=0, le=2**32 - 1)]
    boot_id: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[0-9a-f-]+$")]
    device: Annotated[int, Field(ge=0, le=2**63 - 1)]
    inode: Annotated[int, Field(ge=0, le=2**63 - 1)]


class FilesRequest(Request):
    """The files that a session's tasks find in their working folder: an upload, or a folder of the same machine."""

    upload: Annotated[UUID, Field(strict=False)] | None = None
    local: LocalFolderRequest | None = None


class UploadView(Answer):
    id: UUID
    digest: str
    """SHA-256 of the manifest."""
    size: int
    files: int
    complete: bool
    missing: str = ""
    """Positions of the chunks that the server does not have, in the manifest's list of distinct chunks."""
    created_at: datetime
    used_at: datetime


def json_schema() -> dict[str, Any]:
    """Return the schema of a manifest for the API's description, without references.

    A reference within a schema would be resolved from the top of the description, where its target is not.
    """
    (schema,), components = msgspec.json.schema_components([Manifest], ref_template="{name}")

    def inlined(part: Any) -> Any:
        if isinstance(part, dict):
            return inlined(components[part["$ref"]]) if "$ref" in part else {k: inlined(v) for k, v in part.items()}
        return [inlined(each) for each in part] if isinstance(part, list) else part

    return cast(dict[str, Any], inlined(schema))
