"""Occupancy by name: the occupied amounts of the tenants and nodes that a principal may see."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import Sight, Target
from mooring.store.accounting.occupancy import Slots, occupancy
from mooring.store.tables import domains, keypairs, nodes, projects, users

Axis = Literal["keypair", "user", "project", "domain", "node"]


class Occupied(NamedTuple):
    axis: Axis
    name: str
    slot: str
    amount: int


_NAMES: Mapping[Axis, Select[Any]] = {
    "keypair": select(
        keypairs.c.access_key, keypairs.c.access_key, users.c.domain_id, keypairs.c.project_id, users.c.id
    ).join(users, users.c.id == keypairs.c.user_id),
    "user": select(users.c.id, users.c.name, users.c.domain_id, users.c.project_id, users.c.id),
    "project": select(projects.c.id, domains.c.name + "/" + projects.c.name, domains.c.id, projects.c.id).join(
        domains, domains.c.id == projects.c.domain_id
    ),
    "domain": select(domains.c.id, domains.c.name, domains.c.id),
    "node": select(nodes.c.id, nodes.c.name),
}
"""Queries for the key, the name, and the ids of the domain, project and user, as far as they apply."""


async def occupied(connection: AsyncConnection, sight: Sight, axes: Collection[Axis] = ()) -> list[Occupied]:
    """Return every line of the given axes, by default of all; nodes are visible to everyone."""
    found = await occupancy(connection)
    on_nodes = {node: slots for of_pool in found.nodes.values() for node, slots in of_pool.items()}
    by_axis: Mapping[Axis, Mapping[Any, Slots]] = {
        "keypair": found.keypairs,
        "user": found.users,
        "project": found.projects,
        "domain": found.domains,
        "node": on_nodes,
    }
    lines: list[Occupied] = []
    for axis, amounts in by_axis.items():
        if not amounts or (axes and axis not in axes):
            continue
        names = {
            key: name
            for key, name, *ids in await connection.execute(_NAMES[axis])
            if axis == "node" or sight.shows(Target(*ids))
        }
        shown = sorted((names[key], slots) for key, slots in amounts.items() if key in names)
        lines += [Occupied(axis, name, slot, slots[slot]) for name, slots in shown for slot in sorted(slots)]
    return lines
