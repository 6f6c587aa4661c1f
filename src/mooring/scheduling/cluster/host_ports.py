"""Host ports that a node gives to tasks out of its port range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mooring.model.workloads.constraints import Constraints, HostPort


def with_host_ports(constraints: Constraints, given: Iterable[HostPort]) -> Constraints:
    """Return the constraints of a task that was given ports of its node's range, as host ports.

    `given` may repeat the ports that the constraints name.
    """
    given = tuple(port for port in given if port not in constraints.host_ports)
    return replace(constraints, host_ports=(*constraints.host_ports, *given), ports_wanted=0) if given else constraints
