"""The footprint of a task on its node: everything that it occupies except amounts of slots."""

from __future__ import annotations

from typing import NamedTuple

from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import Constraints


class Footprint(NamedTuple):
    """The constraints of a task, including its ports, and its devices, all released when it ends."""

    constraints: Constraints | None
    """None if the cluster does not count it among the placed tasks."""
    devices: tuple[DeviceShare, ...] = ()
    leaving: bool = False
    """It is about to end and does not count for topology spread."""
    grace_seconds: int = 0
    """The stop grace at the end of its expected time, which it seldom needs."""

    @property
    def licences(self) -> int:
        return int(self.constraints is not None and self.constraints.licence is not None)

    @property
    def is_beyond_slots(self) -> bool:
        """True if it occupies devices, ports or a licence."""
        own = self.constraints
        return bool(self.devices) or (own is not None and (own.licence is not None or bool(own.host_ports)))

    @property
    def keeps_others_away(self) -> bool:
        """True if tasks on other nodes of its topology domains can conflict with it."""
        own = self.constraints
        return own is not None and (bool(own.anti_affinity) or any(spread.hard for spread in own.spread))
