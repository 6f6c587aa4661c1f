"""Suspicion: nodes on which different workloads fail are avoided, then drained, up to a limit per pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.suspicion import (
    Suspicion,
    described,
    evidence,
    max_drained,
)
from mooring.store.core.engine import Connection
from mooring.store.nodes import nodes, suspicion
from mooring.store.nodes.suspicion import Suspect
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_ACTOR = "suspicion"


class SuspicionLoop:
    def __init__(self, database: FencedDatabase, rules: Suspicion) -> None:
        self._database = database
        self._rules = rules

    async def once(self) -> bool:
        rules, at = self._rules, now()
        if not rules.failures:
            return False
        async with self._database.read() as connection:
            known = await suspicion.all_nodes(connection)
            failures = await suspicion.failures(connection, rules, at)
            avoided = {node.id for node in known if node.avoided_since is not None}
            looked_at = avoided | {id for id, work in evidence(failures).items() if len(work) >= rules.failures}
            well = await suspicion.well_until(connection, looked_at, rules, at) if looked_at else {}
        metrics.nodes_avoided.set(len(avoided))
        bad = {id: work for id, work in evidence(failures, well).items() if len(work) >= rules.failures}
        await self._forgive([node for node in known if _is_well(node, well)])
        await self._avoid(
            {
                node: described(bad[node.id].values(), rules.window)
                for node in known
                if node.id in bad and node.avoided_since is None
            }
        )
        for node, reason in _to_drain(known, bad, rules):
            await self._drain(node, reason)
        return False

    async def _forgive(self, forgiven: Sequence[Suspect]) -> None:
        ids = [node.id for node in forgiven]
        if not ids:
            return

        async def work(connection: Connection, term: int) -> None:
            await suspicion.forgive(connection, ids, actor=_ACTOR, now=now(), term=term)

        await self._database.write(work)

    async def _avoid(self, suspects: Mapping[Suspect, str]) -> None:
        if not suspects:
            return
        reasons = {node.id: reason for node, reason in suspects.items()}

        async def work(connection: Connection, term: int) -> None:
            await suspicion.avoid(connection, reasons, actor=_ACTOR, now=now(), term=term)

        await self._database.write(work)
        for node, reason in suspects.items():
            _log.warning(f"Node {node.name} is avoided: {reason}")

    async def _drain(self, node: Suspect, reason: str) -> None:
        async def work(connection: Connection, term: int) -> None:
            await nodes.set_draining(connection, node.id, True, actor=_ACTOR, now=now(), reason=reason)

        await self._database.write(work)
        metrics.bad_nodes_drained.inc()
        _log.error(f"Node {node.name} is drained: {reason}")


def _to_drain(
    known: Sequence[Suspect], bad: Mapping[UUID, Mapping[Hashable, str]], rules: Suspicion
) -> list[tuple[Suspect, str]]:
    """Return the nodes with twice the failures that make a node avoided, worst first, within the limit of each pool."""
    sizes = Counter(node.pool_id for node in known)
    drained = Counter(node.pool_id for node in known if node.draining and node.avoided_since)
    served = {node.pool_id for node in known if node.id not in bad and _takes_work(node)}
    worst_first = sorted(
        (node for node in known if len(bad.get(node.id, ())) >= 2 * rules.failures), key=lambda node: -len(bad[node.id])
    )
    chosen: list[tuple[Suspect, str]] = []
    for node in worst_first:
        pool = node.pool_id
        if node.draining or not node.avoided_since or pool not in served or drained[pool] >= max_drained(sizes[pool]):
            continue
        drained[pool] += 1
        chosen.append((node, described(bad[node.id].values(), rules.window)))
    return chosen


def _is_well(node: Suspect, well: Mapping[UUID, datetime]) -> bool:
    """Return whether a task ran well on the node after it became avoided. A draining node stays so until resumed."""
    avoided, last = node.avoided_since, well.get(node.id)
    return avoided is not None and last is not None and last > avoided and not node.draining


def _takes_work(node: Suspect) -> bool:
    return node.status is NodeStatus.READY and node.schedulable and node.avoided_since is None
