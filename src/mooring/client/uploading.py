"""The upload of a local folder: only chunks that the server does not have are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

from mooring.client.folder_scan import Piece, Scan, describe
from mooring.model.errors import InvalidInput, MooringError, Unavailable
from mooring.wire.workloads.uploads import MAX_CHUNKS_PER_REQUEST, UploadView, runs

_REQUEST_BYTES = 16 * 1024**2
_READ_BYTES = 256 * 1024
_ATTEMPTS = 3

Phase = Literal["reading", "uploading"]
Report = Callable[[Phase, int, int], None]
"""Receives the phase, its bytes so far and its total bytes."""


class UploadClient(Protocol):
    """The methods of a client that an upload needs."""

    def declare_upload(self, manifest: bytes, *, project: str | None = None) -> UploadView: ...

    def complete_upload(self, upload_id: str) -> UploadView: ...

    def store_chunks(self, upload_id: str, chunks: str, pieces: Iterable[bytes]) -> None: ...


def upload(client: UploadClient, found: Scan, *, project: str | None = None, report: Report) -> UploadView:
    """Upload the files of a scan. A connection that breaks is tried again, and continues where it ended, until some
    attempts in a row have brought nothing.
    """
    total = found.size
    described = describe(found, lambda done: report("reading", done, total))
    answer = client.declare_upload(described.manifest, project=project)
    attempts = 0
    while not answer.complete:
        missing = _positions(answer.missing)
        coming = sum(described.pieces[position].size for position in missing)
        sent = 0
        problem: Unavailable | None = None
        try:
            for batch in _batches(described.pieces, missing):
                report("uploading", sent, coming)
                client.store_chunks(str(answer.id), *_body(described.pieces, batch))
                sent += sum(described.pieces[position].size for position in batch)
            report("uploading", sent, coming)
        except Unavailable as unavailable:
            problem = unavailable
        except InvalidInput as refusal:
            if refusal.code != "wrong-chunk":
                raise
            raise MooringError("a file changed while it was uploaded; try again", code="file-changed") from refusal
        answer = client.complete_upload(str(answer.id))
        attempts = 0 if len(_positions(answer.missing)) < len(missing) else attempts + 1
        if attempts == _ATTEMPTS:
            raise problem or Unavailable("the server does not store the files that are sent; see its log")
    return answer


def _body(pieces: Sequence[Piece], batch: Sequence[int]) -> tuple[str, Iterator[bytes]]:
    return runs(batch), _content([pieces[position] for position in batch])


def _content(pieces: Iterable[Piece]) -> Iterator[bytes]:
    for piece in pieces:
        try:
            file = piece.file.open()
        except OSError as error:
            raise _changed(piece) from error
        with file:
            file.seek(piece.offset)
            left = piece.size
            while left:
                data = file.read(min(left, _READ_BYTES))
                if not data:
                    raise _changed(piece)
                left -= len(data)
                yield data


def _changed(piece: Piece) -> MooringError:
    return MooringError(f"{str(piece.file)!r} changed while it was uploaded; try again", code="file-changed")


def _batches(pieces: Sequence[Piece], missing: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for position in missing:
        if batch and (len(batch) == MAX_CHUNKS_PER_REQUEST or size + pieces[position].size > _REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(position)
        size += pieces[position].size
    if batch:
        yield batch


def _positions(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
