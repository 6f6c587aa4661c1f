"""A simulation applies the profile that a server would."""

from __future__ import annotations

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.devices import WHOLE
from mooring.scheduling.cluster_state import Cluster
from mooring.simulation.pools import Pools


def test_profile_that_is_not_chosen_follows_the_devices_of_the_present_nodes():
    accelerated = Node(name="a", pool="mixed", allocatable={"cpu": 8000, "gpu": 2 * WHOLE})
    plain = [Node(name=f"b-{pool}", pool=pool, allocatable={"cpu": 8000}) for pool in ("mixed", "cpu")]
    cluster = Cluster([accelerated, *plain])
    policies = {"mixed": PoolPolicy("auto"), "cpu": PoolPolicy("auto"), "chosen": PoolPolicy("pack")}
    pools = Pools(cluster, policies, {}, admits=False)

    def applied() -> list[str]:
        return [pools.scheduler(name).profile.name for name in policies]

    assert applied() == ["gpu", "locality", "pack"]
    cluster.remove(accelerated.id)
    assert applied() == ["locality", "locality", "pack"]
    cluster.upsert(accelerated)
    assert applied() == ["gpu", "locality", "pack"]
