"""Tasks of which another attempt is to come are found without a look at all that failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    again = sa.text("requeue AND current")
    op.create_index(
        "ix_tasks_workload_id_requeue", "tasks", ["workload_id"], sqlite_where=again, postgresql_where=again
    )


def downgrade() -> None:
    op.drop_index("ix_tasks_workload_id_requeue", table_name="tasks")
