"""Plugins: protocols, registry and profiles, and the built-in filters, scorers, selectors, orders and validators.

`mooring.scheduling.plugins` itself has the names that a plugin needs.
"""

from mooring.scheduling.plugins.protocols import (
    Binder,
    Candidates,
    ChoosesDevices,
    DependsOn,
    Filter,
    FollowsPlacements,
    Offer,
    OrderingContext,
    Rejection,
    Scorer,
    Selective,
    Selector,
    Sequencer,
    Situation,
)

__all__ = [
    "Binder",
    "Candidates",
    "ChoosesDevices",
    "DependsOn",
    "Filter",
    "FollowsPlacements",
    "Offer",
    "OrderingContext",
    "Rejection",
    "Scorer",
    "Selective",
    "Selector",
    "Sequencer",
    "Situation",
]
