"""Uploaded folders and their chunks. The content is in the server's folder for uploads, not in the database."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    UniqueConstraint,
    text,
)

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
    # Bytes that the manifest is charged for: its size, at least those of a disk block.
    Column("manifest_bytes", Integer, nullable=False),
    # Total bytes and number of its files.
    Column("size", BigInteger, nullable=False),
    Column("files", Integer, nullable=False),
    Column("created_by", Id, ForeignKey("users.id", ondelete="SET NULL"), index=True),
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
    # The user who declared it first.
    Column("charged_to", Id, ForeignKey("users.id", ondelete="SET NULL"), index=True),
    # Number of uploads of the project that contain it. At 0 its content is removed, then its row.
    Column("uses", Integer, nullable=False),
    Index("ix_upload_chunks_unused", "project_id", sqlite_where=text("uses = 0"), postgresql_where=text("uses = 0")),
)
