"""Uploaded folders and their chunks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "uploads",
    "upload_chunks",
)


def create() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("manifest", sa.LargeBinary(), nullable=False),
        sa.Column("store_id", sa.String(length=32), nullable=False),
        sa.Column("manifest_bytes", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("created_by", Id(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("completed_at", UtcDateTime(), nullable=True),
        sa.Column("used_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_uploads_created_by"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_uploads_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
        sa.UniqueConstraint("project_id", "digest", name=op.f("uq_uploads_project_id_digest")),
    )
    op.create_index(op.f("ix_uploads_created_by"), "uploads", ["created_by"])
    op.create_index(op.f("ix_uploads_used_at"), "uploads", ["used_at"])
    op.create_table(
        "upload_chunks",
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("charged_bytes", sa.Integer(), nullable=False),
        sa.Column("charged_to", Id(), nullable=True),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["charged_to"], ["users.id"], name=op.f("fk_upload_chunks_charged_to"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_upload_chunks_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "digest", name=op.f("pk_upload_chunks")),
    )
    op.create_index(op.f("ix_upload_chunks_charged_to"), "upload_chunks", ["charged_to"])
    op.create_index(
        "ix_upload_chunks_unused",
        "upload_chunks",
        ["project_id"],
        sqlite_where=sa.text("uses = 0"),
        postgresql_where=sa.text("uses = 0"),
    )
