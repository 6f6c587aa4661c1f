"""Tenants, their credentials, policies and quotas, and the record of administrative actions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "admin_actions",
    "domains",
    "fair_share_weights",
    "policies",
    "signing_keys",
    "tenant_resources",
    "projects",
    "registry_logins",
    "secrets",
    "users",
    "identities",
    "logins",
    "login_codes",
    "keypairs",
    "memberships",
)


def create() -> None:
    op.create_table(
        "admin_actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("user_id", Id(), nullable=True),
        sa.Column("username", sa.String(length=63), nullable=False),
        sa.Column("address", sa.String(length=63), nullable=True),
        sa.Column("action", sa.String(length=63), nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("before", json_type(), nullable=True),
        sa.Column("after", json_type(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admin_actions")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_admin_actions_at"), "admin_actions", ["at"])
    op.create_index("ix_admin_actions_noun_object", "admin_actions", ["noun", "object"])
    op.create_table(
        "domains",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("(true)"), nullable=False),
        sa.Column("policy_id", Id(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_domains")),
        sa.UniqueConstraint("name", name=op.f("uq_domains_name")),
    )
    op.create_table(
        "fair_share_weights",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.CheckConstraint("weight > 0", name=op.f("ck_fair_share_weights_positive")),
        sa.PrimaryKeyConstraint("scope", "tenant_id", name=op.f("pk_fair_share_weights")),
    )
    op.create_table(
        "policies",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("rules", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("name", name=op.f("uq_policies_name")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "tenant_resources",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.Column("pool", sa.String(length=63), server_default=sa.text("('')"), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("guaranteed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.Column("override_limit", sa.BigInteger(), nullable=True),
        sa.Column("override_until", UtcDateTime(), nullable=True),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("reserved >= 0 AND used >= 0", name=op.f("ck_tenant_resources_not_negative")),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "pool", "slot_name", name=op.f("pk_tenant_resources")),
    )
    op.create_table(
        "projects",
        sa.Column("id", Id(), nullable=False),
        sa.Column("domain_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("(true)"), nullable=False),
        sa.Column("policy_id", Id(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_projects_domain_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("domain_id", "name", name=op.f("uq_projects_domain_id_name")),
        sa.UniqueConstraint("number", name=op.f("uq_projects_number")),
    )
    op.create_table(
        "registry_logins",
        sa.Column("id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("registry", sa.String(length=255), nullable=False),
        sa.Column("username", sa.String(length=255), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(length=63), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_registry_logins_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_registry_logins")),
        sa.UniqueConstraint("project_id", "registry", name=op.f("uq_registry_logins_project_id_registry")),
    )
    op.create_table(
        "secrets",
        sa.Column("id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(length=63), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_secrets_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_secrets_project_id_name")),
    )
    op.create_table(
        "users",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("domain_id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("os_user", sa.String(length=255), nullable=True),
        sa.Column("policy_id", Id(), nullable=True),
        sa.Column("token_epoch", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_users_domain_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_users_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "identities",
        sa.Column("id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("issuer", sa.String(length=255), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("secret_hash", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_identities_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_identities_issuer_subject")),
    )
    op.create_index(op.f("ix_identities_user_id"), "identities", ["user_id"])
    op.create_table(
        "logins",
        sa.Column("id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("address", sa.String(length=63), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("last_used_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_logins_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logins")),
    )
    op.create_index(op.f("ix_logins_user_id"), "logins", ["user_id"])
    op.create_index(op.f("ix_logins_expires_at"), "logins", ["expires_at"])
    op.create_table(
        "login_codes",
        sa.Column("code_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("login_id", Id(), nullable=True),
        sa.Column("token_epoch", sa.Integer(), nullable=False),
        sa.Column("auth_time", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_login_codes_user_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["login_id"], ["logins.id"], name=op.f("fk_login_codes_login_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("code_hash", name=op.f("pk_login_codes")),
    )
    op.create_index(op.f("ix_login_codes_user_id"), "login_codes", ["user_id"])
    op.create_index(op.f("ix_login_codes_login_id"), "login_codes", ["login_id"])
    op.create_index(op.f("ix_login_codes_expires_at"), "login_codes", ["expires_at"])
    op.create_table(
        "keypairs",
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("secret_hash", sa.String(length=255), nullable=True),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=True),
        sa.Column("scope", sa.String(length=16), server_default=sa.text("'all'"), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=True),
        sa.Column("last_used_at", UtcDateTime(), nullable=True),
        sa.Column("policy_id", Id(), nullable=True),
        sa.Column("parent_key", sa.String(length=40), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_keypairs_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_keypairs_user_id")),
        sa.PrimaryKeyConstraint("access_key", name=op.f("pk_keypairs")),
    )
    op.create_index("ix_keypairs_parent_key", "keypairs", ["parent_key"])
    op.create_index(op.f("ix_keypairs_user_id"), "keypairs", ["user_id"])
    op.create_table(
        "memberships",
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_memberships_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_memberships_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "project_id", name=op.f("pk_memberships")),
    )
    op.create_index(op.f("ix_memberships_project_id"), "memberships", ["project_id"])
