"""Triggers that make `admin_actions` append-only.

Anyone can fail to log in, so the rows of logins are purged by age. All other rows stay as they were written.
"""

from __future__ import annotations

from alembic import op


def create() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _create_on_postgresql()
    else:
        _create_on_sqlite()


def drop() -> None:
    """Drop the function; the triggers go with their table."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_change()")


def _create_on_postgresql() -> None:
    op.execute(
        """
        CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME; END $$
        """
    )
    op.execute(
        "CREATE TRIGGER append_only_update BEFORE UPDATE ON admin_actions FOR EACH ROW EXECUTE FUNCTION refuse_change()"
    )
    op.execute(
        "CREATE TRIGGER append_only_delete BEFORE DELETE ON admin_actions"
        " FOR EACH ROW WHEN (OLD.noun <> 'login') EXECUTE FUNCTION refuse_change()"
    )


def _create_on_sqlite() -> None:
    refuse = "SELECT RAISE(ABORT, 'rows of admin_actions are only ever added');"
    op.execute(f"CREATE TRIGGER append_only_update BEFORE UPDATE ON admin_actions BEGIN {refuse} END")
    op.execute(
        f"CREATE TRIGGER append_only_delete BEFORE DELETE ON admin_actions WHEN OLD.noun <> 'login' BEGIN {refuse} END"
    )
