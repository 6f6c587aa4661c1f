"""Bookings of a simulation: capacity reserved for a window, and the jobs that run inside."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.bookings import Booked, book
from mooring.scheduling.cluster_state import Cluster
from mooring.simulation.outcomes import BookingOutcome
from mooring.simulation.pools import Pools
from mooring.simulation.scenario import Booking


class Bookings:
    """Requests every booking at the start of the simulation, in the order of the scenario."""

    def __init__(self, cluster: Cluster, pools: Pools, bookings: Sequence[Booking]) -> None:
        self.ids: dict[str, UUID] = {each.name: uuid5(NAMESPACE_OID, f"booking:{each.name}") for each in bookings}
        self.outcomes: list[BookingOutcome] = []
        self._cluster = cluster
        for each in bookings:
            self.outcomes.append(self._request(each, pools))

    @property
    def refused(self) -> set[str]:
        return {each.name for each in self.outcomes if not each.confirmed}

    def release(self, name: str) -> None:
        """End a booking; its jobs have been stopped."""
        self._cluster.timeslots.forget(self.ids[name])

    def _request(self, booking: Booking, pools: Pools) -> BookingOutcome:
        cluster, identity = self._cluster, self.ids[booking.name]
        begins = max(booking.start - booking.lead_seconds, 0)
        work = Workload(name=booking.name, pool=booking.pool, request=booking.request)
        rows = pools.scheduler(booking.pool).rows_for(work)
        demand = cluster.demand(tuple(sorted(booking.request.items())))
        answer = book(cluster, identity, rows, demand, booking.count, begins, booking.end)
        if not isinstance(answer, Booked):
            return BookingOutcome(booking.name, False, booking.start, booking.end, ())
        left = {
            cluster.node(row).id: {slot: tasks * amount for slot, amount in booking.request.items()}
            for row, tasks in answer.placements
        }
        cluster.timeslots.update(identity, begins, booking.end, left, is_open=True)
        nodes = tuple(cluster.node(row).name for row, _ in answer.placements)
        return BookingOutcome(booking.name, True, booking.start, booking.end, nodes)
