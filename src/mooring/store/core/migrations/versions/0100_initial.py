"""The schema of the first release.

Revisions up to 0018 belonged to versions that were never released; `schema.is_unreleased` recognises them.
"""

from __future__ import annotations

from alembic import op

from mooring.store.core.migrations.initial import (
    accounting,
    append_only,
    control,
    defragmentation,
    ledger,
    nodes,
    origins,
    reservations,
    scaling,
    tenancy,
    uploads,
    workloads,
)

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

# In the order of creation: tables refer to tables of earlier subjects only.
_SUBJECTS = (tenancy, nodes, uploads, workloads, ledger, reservations, scaling, defragmentation, accounting, control)

# Rows that are updated in place. With free space in the page an update needs no new index entry.
_UPDATED_IN_PLACE = ("resource_allocations", "node_resources", "node_devices")


def upgrade() -> None:
    for subject in _SUBJECTS:
        subject.create()
    append_only.create()
    if op.get_bind().dialect.name == "postgresql":
        for table in _UPDATED_IN_PLACE:
            op.execute(f"ALTER TABLE {table} SET (fillfactor = 50)")
        op.execute("ALTER TABLE events ALTER COLUMN transaction_id SET DEFAULT (pg_current_xact_id()::text::bigint)")
        origins.create()


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        origins.drop()
    for subject in reversed(_SUBJECTS):
        for table in reversed(subject.TABLES):
            op.drop_table(table)
    append_only.drop()
