"""Uploaded folders and their chunks. The content is in the server's folder for uploads, not in the database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String, Table, UniqueConstraint

from mooring.store.core.types import Id, UtcDateTime
from mooring.store.tables.base import metadata

uploads = Table(
    "uploads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    # SHA-256 of the manifest.
    Column("digest", String(64), nullable=False),
    Column("manifest", LargeBinary, nullable=False),
    # The id of the folder that has its chunks.
    Column("store_id", String(32), nullable=False),
    # Bytes of the manifest, which count against the project's quota.
    Column("manifest_bytes", Integer, nullable=False),
    # Total bytes and number of its files.
    Column("size", BigInteger, nullable=False),
    Column("files", Integer, nullable=False),
    Column("created_by", Id, ForeignKey("users.id", ondelete="SET NULL")),
    Column("created_at", UtcDateTime, nullable=False),
    # Null until every chunk has arrived.
    Column("completed_at", UtcDateTime),
    Column("used_at", UtcDateTime, nullable=False, index=True),
    UniqueConstraint("project_id", "digest"),
)

upload_chunks = Table(
    "upload_chunks",
    metadata,
    Column("project_id", Id, ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    # Bytes that it is charged for: its size, at least those of a disk block.
    Column("charged_bytes", Integer, nullable=False),
)
