"""The election that the settings ask for: alone on SQLite, a lease in PostgreSQL, or etcd."""

from __future__ import annotations

from mooring.coordination.election import Alone, Election
from mooring.coordination.etcd.client import EtcdClient, Login, Tls, endpoints
from mooring.coordination.etcd.election import EtcdElection
from mooring.coordination.etcd.guarded import GuardedElection
from mooring.coordination.lease import LeaseElection, LeaseRow
from mooring.settings import Settings
from mooring.store.core.engine import Database


def election_kind(settings: Settings, database: Database) -> str:
    if settings.etcd_host is not None:
        return "etcd"
    return "database" if database.dialect == "postgresql" else "alone"


def election_of(settings: Settings, database: Database, name: str) -> Election:
    if settings.etcd_host is not None:
        return GuardedElection(
            EtcdElection(etcd_client(settings), name, settings.leader_lease_ttl),
            LeaseRow(database, name, settings.leader_lease_ttl),
            fallback_seconds=settings.etcd_fallback_seconds or None,
        )
    if database.dialect == "postgresql":
        return LeaseElection(database, name, settings.leader_lease_ttl)
    return Alone()


def etcd_client(settings: Settings) -> EtcdClient:
    assert settings.etcd_host is not None
    password = settings.etcd_password.get_secret_value() if settings.etcd_password else ""
    tls = Tls(settings.etcd_ca, settings.etcd_cert, settings.etcd_key)
    return EtcdClient(
        endpoints(settings.etcd_host, settings.etcd_port),
        tls=tls if settings.etcd_tls else None,
        login=Login(settings.etcd_username, password) if settings.etcd_username else None,
    )
