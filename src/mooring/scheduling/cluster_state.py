"""The cluster that scheduling passes work on: columns for the present, the calendar for the time ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from uuid import UUID

from mooring.model.nodes.node import Node
from mooring.model.resources.slots import Amounts
from mooring.scheduling.calendar.reserved_capacity import Timeslots
from mooring.scheduling.calendar.timeline import Timeline
from mooring.scheduling.calendar.withheld import Plans
from mooring.scheduling.cluster.columns import ClusterColumns
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.placed_tasks import PlacedTasks
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.expected_fill.pools import ExpectedFill


class Cluster(ClusterColumns):
    """All nodes as columns, with the promises on them.

    The columns themselves do not depend on time: they live in a package that imports no other part of the core.
    """

    def __init__(
        self, nodes: Iterable[Node] = (), *, overcommit: Mapping[str, Mapping[str, Fraction]] | None = None
    ) -> None:
        """`overcommit`: per pool the factor by which a compressible slot may be overcommitted."""
        super().__init__(overcommit=overcommit)
        self.timeline = Timeline(self)
        """Future changes of the taken amounts."""
        self.timeslots = Timeslots(self)
        """Remaining capacity of timeslots for their own work."""
        self.plans = Plans(self, self.timeline)
        """Needs of planned starts beyond amounts, withheld from other work."""
        self.expected_fill = ExpectedFill(self)
        """The demand to come and the prices of capacity, for the scorer of that name."""
        self._with_devices: tuple[int, dict[str, bool]] = (-1, {})
        """The answers of `has_devices`, as of a revision of the static changes."""
        for node in nodes:
            self.upsert(node)

    def has_devices(self, pool: str) -> bool:
        """Return whether a node of the pool has GPUs, used or not."""
        revision, answers = self._with_devices
        if revision != self.static_changes.revision:
            revision, answers = self._with_devices = self.static_changes.revision, {}
        if pool not in answers:
            answers[pool] = self.capacity_of(pool).get(DEVICE_SLOT, 0) > 0
        return answers[pool]

    def upsert(self, node: Node) -> None:
        """Add or replace a node as stored; counters that a pass assumed on it are overwritten.

        The expected ends of its tasks are unknown until `set_expected_ends` passes them again.
        """
        super().upsert(node)
        row = self.row_of(node.id)
        assert row is not None
        self.timeline.update(row, {})

    def remove(self, node_id: UUID) -> None:
        """Remove a node; an unknown one is ignored."""
        row = self.row_of(node_id)
        super().remove(node_id)
        if row is not None:
            self.timeline.clear(row)

    def set_expected_ends(
        self,
        node_id: UUID,
        ends: Mapping[UUID, tuple[int, Amounts]],
        guessed: Mapping[UUID, tuple[int, Amounts]] | None = None,
        footprints: Mapping[UUID, Footprint] | None = None,
    ) -> None:
        """Set the latest ends of the tasks on a node, in seconds, with the amounts that they occupy.

        Other tasks have an open end. `guessed`: the ends that such tasks usually have. `footprints`: their needs beyond
        amounts.
        """
        row = self.row_of(node_id)
        if row is not None:
            self.timeline.update(row, ends, guessed or {}, footprints or {})

    def _double_rows(self) -> None:
        super()._double_rows()
        self.timeline.grow(self.capacity)

    # Former names, kept as aliases.
    @property
    def placed(self) -> PlacedTasks:
        return self.placed_tasks

    tell_tasks = ClusterColumns.set_tasks
    tell_ends = set_expected_ends
    tell_typical = ClusterColumns.set_typical_requests
