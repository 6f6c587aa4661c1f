"""Operations on uploads."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, Upload, given, segment
from mooring.wire.workloads.uploads import UploadView


def uploads(*, project: str | None = None) -> Operation[list[UploadView]]:
    """The uploads of a project, the last used first."""
    return Operation("GET", "/api/uploads", list[UploadView], query=given(project=project))


def declare_upload(manifest: bytes, *, project: str | None = None) -> Operation[UploadView]:
    """Declare a folder; the answer names the chunks to send. The same manifest again is the same upload."""
    return Operation("POST", "/api/uploads", UploadView, query=given(project=project), json=manifest)


def store_chunks(upload_id: str, chunks: str) -> Upload:
    return Upload(f"/api/uploads/{segment(upload_id)}/content", given(chunks=chunks))


def complete_upload(upload_id: str) -> Operation[UploadView]:
    return Operation("POST", f"/api/uploads/{segment(upload_id)}/complete", UploadView)


def remove_upload(upload_id: str) -> Operation[None]:
    return Operation("DELETE", f"/api/uploads/{segment(upload_id)}", type(None))
