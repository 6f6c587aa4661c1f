"""Alembic's entry point. It runs on the connection that `store.core.schema` passes in."""

from __future__ import annotations

from alembic import context

from mooring.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
    # The views in the schema `origins` exist on PostgreSQL only and are not part of the metadata.
    include_schemas=False,
)
with context.begin_transaction():
    context.run_migrations()
