"""Sequencers: which workload of a priority band is next? One file each; `bands` splits the queue by priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mooring.model.policy.pools import PoolPolicy
from mooring.scheduling.plugins.ordering.drf import DrfSequencer
from mooring.scheduling.plugins.ordering.fair_queue import FairQueueSequencer
from mooring.scheduling.plugins.ordering.fair_share import FairShareSequencer
from mooring.scheduling.plugins.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins.ordering.lifo import LifoSequencer
from mooring.scheduling.plugins.ordering.multi_factor import MultiFactorSequencer
from mooring.scheduling.plugins.protocols import Sequencer

BUILT_IN_SEQUENCERS: Mapping[str, Callable[[PoolPolicy], Sequencer]] = {
    "fair_queue": lambda _: FairQueueSequencer(),
    "fifo": lambda _: FifoSequencer(),
    "lifo": lambda _: LifoSequencer(),
    "drf": lambda _: DrfSequencer(),
    "fair_share": lambda _: FairShareSequencer(),
    "multi_factor": lambda policy: MultiFactorSequencer(dict(policy.factors)),
}
"""Factories that create a sequencer for a pool with this policy."""
