"""Sequencers: who is next among those of one priority? One file each; `bands` puts the priorities before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mooring.model.pools import PoolPolicy
from mooring.scheduling.ordering.drf import DrfSequencer
from mooring.scheduling.ordering.fair_share import FairShareSequencer
from mooring.scheduling.ordering.fifo import FifoSequencer
from mooring.scheduling.ordering.lifo import LifoSequencer
from mooring.scheduling.ordering.multi_factor import MultiFactorSequencer
from mooring.scheduling.plugins import Sequencer

BUILT_IN_SEQUENCERS: Mapping[str, Callable[[PoolPolicy], Sequencer]] = {
    "fifo": lambda _: FifoSequencer(),
    "lifo": lambda _: LifoSequencer(),
    "drf": lambda _: DrfSequencer(),
    "fair_share": lambda _: FairShareSequencer(),
    "multi_factor": lambda policy: MultiFactorSequencer(dict(policy.factors)),
}
"""Each makes a new one for a pool of this policy."""
