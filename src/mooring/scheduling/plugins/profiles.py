"""Profiles: which filters and scorers a pool is scheduled with, composed by name from the registry of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mooring.installed import entry_points
from mooring.model.errors import InvalidInput
from mooring.model.pools import PoolPolicy
from mooring.scheduling.columns import Cluster
from mooring.scheduling.filters import BUILT_IN_FILTERS
from mooring.scheduling.ordering import BUILT_IN_SEQUENCERS
from mooring.scheduling.plugins import DEPENDENCIES, Filter, Scorer, Selector, Sequencer, is_concerned
from mooring.scheduling.scorers import BUILT_IN_SCORERS
from mooring.scheduling.scorers.kubernetes import KUBERNETES_WEIGHTS
from mooring.scheduling.selectors.highest import HighestScore, Ties
from mooring.scheduling.selectors.lexicographic import Concentrated, Dispersed
from mooring.scheduling.selectors.round_robin import RoundRobin
from mooring.scheduling.shapes import Shape
from mooring.scheduling.weights import Weight, whole_weights

DEFAULT_PROFILE = "locality"

_WISHES = {"node_affinity": 30, "task_affinity": 30, "topology_spread": 30, "taints": 30, "images": 10}
"""What tasks and nodes ask for; none of it weighs anything for a task that it does not concern."""

MOST_WEIGHT = 1_000_000
"""Of all scorers together: a weighted score has to share 64 bits with the tiers and the order of names."""

PRESETS: Mapping[str, Mapping[str, int]] = {
    "locality": {"resources": 40, "load": 30, "locality": 30, **_WISHES},
    "balanced": {"resources": 40, "balanced": 30, "load": 20, "unused_capability": 10, **_WISHES},
    "pack": {"most_allocated": 60, "balanced": 20, "unused_capability": 20, **_WISHES},
    # Tasks of one kind that wish to be together outweigh that the profile would have them apart.
    "spread": {"spreading": 60, "resources": 40, **_WISHES, "task_affinity": 90},
    "concentrated": {"most_allocated": 1},
    "dispersed": {"resources": 1},
    "legacy": {"resources": 1},
    "round_robin": {"resources": 1},
    "lab": {"lab": 1, "task_affinity": 1, "topology_spread": 1, "taints": 1},
    "gpu": {"fragmentation": 100, **_WISHES},
    "kubernetes": KUBERNETES_WEIGHTS,
}
"""The weights of the scorers by the name of the profile."""

_CHOOSES_BY = {
    "concentrated": "concentrated",
    "dispersed": "dispersed",
    "legacy": "dispersed",
    "round_robin": "round_robin",
}
"""The presets that choose in another way than by the highest score, with their selectors."""

BUILT_IN_SELECTORS: Mapping[str, Callable[[], Selector]] = {
    "highest": HighestScore,
    "concentrated": Concentrated,
    "dispersed": Dispersed,
    "round_robin": RoundRobin,
    **{f"highest_{ties}": partial(HighestScore, ties) for ties in Ties if ties is not Ties.NAME},
}
"""Each makes a new one, since a selector may remember what it chose last."""


@dataclass(frozen=True, slots=True)
class Active:
    """What of a profile concerns a shape."""

    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, int], ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Filters in the order in which they are named as the reason, and scorers with their weights.

    Without a `selector` the highest score wins, and among equals the lowest name.
    """

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, int], ...]
    selector: Selector | None = None

    def __post_init__(self) -> None:
        if not self.scorers or any(weight <= 0 for _, weight in self.scorers):
            raise InvalidInput(f"profile {self.name!r} needs scorers with weights above 0", code="invalid-profile")
        total = sum(weight for _, weight in self.scorers)
        if total > MOST_WEIGHT:
            raise InvalidInput(
                f"the weights of profile {self.name!r} sum up to {total:,} in whole numbers; "
                f"the most is {MOST_WEIGHT:,}: use smaller ones in the same proportion",
                code="invalid-weight",
            )

    def concerning(self, shape: Shape, cluster: Cluster) -> Active:
        """The filters and scorers that have something to say about a shape."""
        return Active(
            tuple(plugin for plugin in self.filters if is_concerned(plugin, shape, cluster)),
            tuple((plugin, weight) for plugin, weight in self.scorers if is_concerned(plugin, shape, cluster)),
        )


class Registry:
    """The plugins by name: the built-in ones and those that were added."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {plugin.name: plugin for plugin in BUILT_IN_FILTERS}
        self._scorers: dict[str, Scorer] = {plugin.name: plugin for plugin in BUILT_IN_SCORERS}
        self._selectors: dict[str, Callable[[], Selector]] = dict(BUILT_IN_SELECTORS)
        self._sequencers: dict[str, Callable[[PoolPolicy], Sequencer]] = dict(BUILT_IN_SEQUENCERS)

    def discover(self) -> None:
        """Add what installed packages offer under `mooring.filters`, `.scorers`, `.selectors` and `.sequencers`.

        An entry point names a class (or function) without arguments that makes the plugin. One of a sequencer is given
        the pool's policy, and its own name is what pools choose it by.
        """
        for entry in entry_points(group="mooring.filters"):
            self.add_filter(entry.load()())
        for entry in entry_points(group="mooring.scorers"):
            self.add_scorer(entry.load()())
        for entry in entry_points(group="mooring.selectors"):
            self.add_selector(entry.load())
        for entry in entry_points(group="mooring.sequencers"):
            self.add_sequencer(entry.name, entry.load())

    def add_filter(self, plugin: Filter) -> None:
        _check("filter", plugin.name, plugin.depends_on, self._filters)
        self._filters[plugin.name] = plugin

    def add_scorer(self, plugin: Scorer) -> None:
        _check("scorer", plugin.name, plugin.depends_on, self._scorers)
        self._scorers[plugin.name] = plugin

    def add_selector(self, make: Callable[[], Selector]) -> None:
        """Every profile gets a selector of its own from `make`."""
        name = make().name
        if name in self._selectors:
            raise InvalidInput(f"there is a selector {name!r} already; choose another name", code="invalid-plugin")
        self._selectors[name] = make

    def add_sequencer(self, name: str, make: Callable[[PoolPolicy], Sequencer]) -> None:
        """Every pool that chooses it gets one of its own."""
        if name in self._sequencers:
            raise InvalidInput(f"there is a sequencer {name!r} already; choose another name", code="invalid-plugin")
        self._sequencers[name] = make

    def sequencer(self, policy: PoolPolicy) -> Sequencer:
        """The one that a pool of this policy has chosen."""
        make = self._sequencers.get(policy.sequencer)
        if make is None:
            raise _unknown("sequencer", policy.sequencer, self._sequencers)
        return make(policy)

    def profile(
        self,
        name: str = DEFAULT_PROFILE,
        *,
        extra_filters: Sequence[str] = (),
        weights: Mapping[str, int | Weight] | None = None,
        selector: str | Selector | None = None,
    ) -> Profile:
        """A preset by its name, with further filters, other weights and another selector where given.

        The built-in filters always hold. Further ones are asked before those of capacity: that a node is forbidden
        explains more than that it is also full.
        """
        preset = PRESETS.get(name)
        if preset is None:
            raise _unknown("profile", name, PRESETS)
        further = tuple(self._filter(filter_name) for filter_name in extra_filters)
        static = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on == "static")
        capacity = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on != "static")
        chosen = preset if weights is None else whole_weights(weights)
        scorers = tuple((self._scorer(scorer), weight) for scorer, weight in chosen.items())
        chosen_by = selector if selector is not None else _CHOOSES_BY.get(name)
        return Profile(name, (*static, *further, *capacity), scorers, self._selector(chosen_by))

    def _filter(self, name: str) -> Filter:
        plugin = self._filters.get(name)
        if plugin is None:
            raise _unknown("filter", name, self._filters)
        return plugin

    def _selector(self, chosen: str | Selector | None) -> Selector | None:
        if not isinstance(chosen, str):
            return chosen
        make = self._selectors.get(chosen)
        if make is None:
            raise _unknown("selector", chosen, self._selectors)
        return make()

    def _scorer(self, name: str) -> Scorer:
        plugin = self._scorers.get(name)
        if plugin is None:
            raise _unknown("scorer", name, self._scorers)
        return plugin


def _check(kind: str, name: str, depends_on: str, present: Mapping[str, object]) -> None:
    if name in present:
        raise InvalidInput(f"there is a {kind} {name!r} already; choose another name", code="invalid-plugin")
    if depends_on not in DEPENDENCIES:
        raise InvalidInput(
            f"{kind} {name!r} depends on {depends_on!r}; it must be one of {', '.join(DEPENDENCIES)}",
            code="invalid-plugin",
        )


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> InvalidInput:
    return InvalidInput(
        f"there is no {kind} {name!r}; known are {', '.join(sorted(known))}",
        code=f"unknown-{kind}",
        details={kind: name, "known": sorted(known)},
    )
