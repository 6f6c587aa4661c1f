"""Seats: what a term was won with, and the lease of those who coordinate through the database alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leadership_lease",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership_lease")),
    )
    with op.batch_alter_table("leadership", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("kind", sa.String(length=16), nullable=True))
        batch_op.add_column(sa.Column("cluster", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("revision", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("leadership", recreate="never") as batch_op:
        batch_op.drop_column("revision")
        batch_op.drop_column("cluster")
        batch_op.drop_column("kind")

    op.drop_table("leadership_lease")
