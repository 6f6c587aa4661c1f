"""The properties of a node that no placement changes, and its measured load as a number."""

from __future__ import annotations

from mooring.model.decisions import SCORE_ONE
from mooring.model.nodes.node import Node
from mooring.scheduling.cluster.device_columns import kinds_of_devices


def static_properties(node: Node) -> tuple[object, ...]:
    """Return everything that static answers may depend on.

    The generation alone would do if every user of the library raised it.
    """
    return (
        node.generation,
        node.name,
        node.ready,
        node.pool,
        node.runtimes,
        node.architecture,
        node.region,
        node.owner,
        node.isolation,
        node.required_isolation,
        node.labels,
        node.status,
        node.taints,
        node.images,
        node.machine_image,
        node.machine_image_version,
        node.licence,
        node.sessions_allowed,
        node.port_range,
        node.occupied_ports,
        kinds_of_devices(node),
    )


def fixed_point_load(percent: float) -> int:
    """Return a measured percentage in fixed point: SCORE_ONE is 100 percent. NaN and values above 100 count as full."""
    if not 0 <= percent <= 100:
        return 0 if percent < 0 else SCORE_ONE
    return round(percent * (SCORE_ONE // 100))
