"""Tenants, their credentials, policies and quotas, and the record of administrative actions."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
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

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import amount, metadata, serial

domains = Table(
    "domains",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("policy_id", Id),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

projects = Table(
    "projects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("name", String(63), nullable=False),
    # Selects the uid of the project's processes within an agent's reserved range.
    Column("number", Integer, nullable=False, unique=True),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("policy_id", Id),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    UniqueConstraint("domain_id", "name"),
)

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("os_user", String(255)),
    Column("policy_id", Id),
    # Tokens carry it; increasing it revokes all tokens that were issued before.
    Column("token_epoch", Integer, nullable=False, server_default=text("1")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

memberships = Table(
    "memberships",
    metadata,
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", Id, ForeignKey("projects.id"), primary_key=True, index=True),
    # `user` or `project-admin`.
    Column("role", String(16), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

identities = Table(
    "identities",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("issuer", String(255), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("secret_hash", String(255)),
    UniqueConstraint("issuer", "subject"),
)

logins = Table(
    "logins",
    metadata,
    # Logins by password that have not ended; tokens carry the id. Deleting a row ends its tokens.
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    # The client's address at the login.
    Column("address", String(63)),
    Column("created_at", UtcDateTime, nullable=False),
    # To a few minutes.
    Column("last_used_at", UtcDateTime, nullable=False),
    # The end of its newest token.
    Column("expires_at", UtcDateTime, nullable=False, index=True),
)

login_codes = Table(
    "login_codes",
    metadata,
    # One-time codes that open a login; redeeming a code deletes its row.
    Column("code_hash", String(64), primary_key=True),
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    # The login that created it; null for codes that a server prints at its start.
    Column("login_id", Id, ForeignKey("logins.id", ondelete="CASCADE"), index=True),
    Column("token_epoch", Integer, nullable=False),
    # The time of the login by password: a code does not prolong how long tokens can be renewed.
    Column("auth_time", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False, index=True),
)

keypairs = Table(
    "keypairs",
    metadata,
    Column("access_key", String(40), primary_key=True),
    Column("secret_hash", String(255)),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("name", String(63)),
    # Permissions: `all`, `work` or `read`.
    Column("scope", String(16), nullable=False, server_default=text("'all'")),
    Column("expires_at", UtcDateTime),
    Column("last_used_at", UtcDateTime),
    Column("policy_id", Id),
    # The keypair that created it: it has no more permissions, and ends with that one.
    Column("parent_key", String(40)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Index("ix_keypairs_parent_key", "parent_key"),
)

policies = Table(
    "policies",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    # A `Policy` of the model.
    Column("rules", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

tenant_resources = Table(
    "tenant_resources",
    metadata,
    Column("scope", String(16), primary_key=True),
    # A keypair's access key, otherwise the id as text.
    Column("tenant_id", String(63), primary_key=True),
    # Empty for all pools together, to which limits apply.
    Column("pool", String(63), primary_key=True, server_default=text("''")),
    # `sessions` and `private-sessions` count workloads with a task on a node.
    Column("slot_name", String(64), primary_key=True),
    # Of a project in a pool; other projects of the pool may borrow the unused part.
    amount("guaranteed"),
    Column("limit", BigInteger),
    # Replaces the limit until `override_until`.
    Column("override_limit", BigInteger),
    Column("override_until", UtcDateTime),
    # Sums of the ledger: held or reserved by tasks that have not started, and used by those that have.
    amount("reserved"),
    amount("used"),
    CheckConstraint("reserved >= 0 AND used >= 0", name="not_negative"),
)

fair_share_weights = Table(
    "fair_share_weights",
    metadata,
    # `domain`, `project` or `user`. Tenants without a row have the default weight, 100.
    Column("scope", String(16), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
    Column("weight", Integer, nullable=False),
    CheckConstraint("weight > 0", name="positive"),
)

admin_actions = Table(
    "admin_actions",
    metadata,
    # Append-only: triggers refuse updates and deletes, except deletes of login rows, which are purged by age.
    Column("id", serial, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False, index=True),
    Column("user_id", Id),
    Column("username", String(63), nullable=False),
    Column("address", String(63)),
    Column("action", String(63), nullable=False),
    # The kind of the object (`pool`, `policy`, `user`, `quota`, …); `object` is its name.
    Column("noun", String(16), nullable=False),
    Column("object", String(255), nullable=False),
    # The version of the object after the change, if it has versions.
    Column("version", Integer),
    Column("before", json_type()),
    Column("after", json_type()),
    Index("ix_admin_actions_noun_object", "noun", "object"),
    sqlite_autoincrement=True,
)

signing_keys = Table(
    "signing_keys",
    metadata,
    # The key itself is never stored: its id shows whether servers share a key.
    Column("id", String(32), primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
    # Tokens that it has signed are invalid, whatever their time.
    Column("revoked_at", UtcDateTime),
)


def _sealed_table(name: str, key: Column[str], *plain: Column[str]) -> Table:
    """Return a table of encrypted values of projects. `key_id` names the encryption key, which is not stored."""
    return Table(
        name,
        metadata,
        Column("id", Id, primary_key=True),
        Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
        key,
        *plain,
        Column("sealed", LargeBinary, nullable=False),
        Column("key_id", String(63), nullable=False),
        Column("created_at", UtcDateTime, nullable=False),
        Column("updated_at", UtcDateTime, nullable=False),
        UniqueConstraint("project_id", key.name),
    )


registry_logins = _sealed_table(
    "registry_logins",
    Column("registry", String(255), nullable=False),
    Column("username", String(255), nullable=False),
)

secrets = _sealed_table("secrets", Column("name", String(63), nullable=False))
