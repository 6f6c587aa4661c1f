"""Profiles: the filters, scorers and selector of a pool, composed by name from the registry of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Generic, TypeVar

from mooring.extensions.entry_points import entry_points
from mooring.model.errors import InvalidInput
from mooring.model.names import shown
from mooring.model.policy.pools import AUTOMATIC, WITHOUT_DEVICES, PoolPolicy, effective_profile
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.filters import BUILT_IN_FILTERS
from mooring.scheduling.plugins.ordering import BUILT_IN_SEQUENCERS
from mooring.scheduling.plugins.protocols import (
    DEPENDENCIES,
    Filter,
    Scorer,
    Selector,
    Sequencer,
    is_concerned,
)
from mooring.scheduling.plugins.scorers import BUILT_IN_SCORERS
from mooring.scheduling.plugins.scorers.kubernetes import KUBERNETES_WEIGHTS
from mooring.scheduling.plugins.selectors.highest import HighestScore, Ties
from mooring.scheduling.plugins.selectors.lexicographic import Concentrated, Dispersed
from mooring.scheduling.plugins.selectors.round_robin import RoundRobin
from mooring.scheduling.plugins.weights import Weight, whole_weights

Plugin = TypeVar("Plugin")
Options = Mapping[str, str | int | bool]
NO_OPTIONS: Options = {}

_SOFT_CONSTRAINTS = {"node_affinity": 30, "task_affinity": 30, "topology_spread": 30, "taints": 200, "images": 10}
"""Soft constraints of tasks and nodes. They have no weight for tasks that they do not concern.

One taint costs half of its weight: as much as the other terms of most profiles together, so that no difference in load
or use sends work to a tainted node, for example to one that is suspected of failing.
"""

MOST_WEIGHT = 1_000_000
"""Limit on the total weight: a weighted score shares 64 bits with the tiers and the order of names."""

PRESETS: Mapping[str, Mapping[str, int]] = {
    "locality": {"resources": 40, "load": 30, "locality": 30, **_SOFT_CONSTRAINTS},
    "balanced": {"resources": 40, "balanced": 30, "load": 20, "unused_capability": 10, **_SOFT_CONSTRAINTS},
    "pack": {"most_allocated": 60, "balanced": 20, "unused_capability": 20, **_SOFT_CONSTRAINTS},
    # Preferred task affinity outweighs the spreading of similar tasks.
    "spread": {"spreading": 60, "resources": 40, **_SOFT_CONSTRAINTS, "task_affinity": 90},
    "concentrated": {"most_allocated": 1},
    "dispersed": {"resources": 1},
    "legacy": {"resources": 1},
    "round_robin": {"resources": 1},
    "lab": {"lab": 1, "task_affinity": 1, "topology_spread": 1, "taints": 2},
    "gpu": {"expected_fill": 100, **_SOFT_CONSTRAINTS},
    "kubernetes": KUBERNETES_WEIGHTS,
}
"""The weights of the scorers by name of the profile."""

_BY_DEMAND = frozenset({"expected_fill", "fragmentation"})
"""Scorers that depend on the requests that are expected to come."""

_CHOOSES_BY = {
    "concentrated": "concentrated",
    "dispersed": "dispersed",
    "legacy": "dispersed",
    "round_robin": "round_robin",
}
"""The selectors of presets that do not choose by the highest score."""

BUILT_IN_SELECTORS: Mapping[str, Callable[..., Selector]] = {
    "highest": HighestScore,
    "concentrated": Concentrated,
    "dispersed": Dispersed,
    "round_robin": RoundRobin,
    **{f"highest_{ties}": partial(HighestScore, ties) for ties in Ties if ties is not Ties.NAME},
}
"""Factories: each profile gets its own selector, since a selector may remember its last choice."""


def effective_policy(policy: PoolPolicy, cluster: Cluster, pool: str) -> PoolPolicy:
    """Return a pool's policy with the profile that applies to its present nodes."""
    if policy.profile != AUTOMATIC:
        return policy
    return replace(policy, profile=effective_profile(AUTOMATIC, devices=cluster.has_devices(pool)))


def places_by_demand(policy: PoolPolicy) -> bool:
    """Return whether a scorer of the pool depends on the demand to come, or does so once a node has devices."""
    profile = effective_profile(policy.profile, devices=True)
    scorers = dict(policy.weights) if policy.weights else PRESETS.get(profile, {})
    return not _BY_DEMAND.isdisjoint(scorers)


@dataclass(frozen=True, slots=True)
class Active:
    """The plugins of a profile that concern a shape."""

    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, int], ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Filters in the order in which rejections are attributed, and scorers with their weights.

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
        """Return the filters and scorers that concern a shape."""
        return Active(
            tuple(plugin for plugin in self.filters if is_concerned(plugin, shape, cluster)),
            tuple((plugin, weight) for plugin, weight in self.scorers if is_concerned(plugin, shape, cluster)),
        )


@dataclass(frozen=True, slots=True)
class _Registered(Generic[Plugin]):
    plugin: Plugin
    """The instance for profiles without options."""
    make: Callable[..., Plugin]


class Registry:
    """All plugins by name, built-in and added."""

    def __init__(self) -> None:
        self._filters: dict[str, _Registered[Filter]] = {
            plugin.name: _Registered(plugin, type(plugin)) for plugin in BUILT_IN_FILTERS
        }
        self._scorers: dict[str, _Registered[Scorer]] = {
            plugin.name: _Registered(plugin, type(plugin)) for plugin in BUILT_IN_SCORERS
        }
        self._selectors: dict[str, Callable[..., Selector]] = dict(BUILT_IN_SELECTORS)
        self._sequencers: dict[str, Callable[[PoolPolicy], Sequencer]] = dict(BUILT_IN_SEQUENCERS)

    def discover(self) -> None:
        """Add the plugins of installed packages: `mooring.filters`, `.scorers`, `.selectors` and `.sequencers`.

        An entry point names a class or function that creates the plugin. Its keyword arguments, all optional, are the
        options that a pool may set. That of a sequencer gets the pool's policy, and pools choose it by the name of
        the entry point.
        """
        for entry in entry_points(group="mooring.filters"):
            make = entry.load()
            self.add_filter(make(), make)
        for entry in entry_points(group="mooring.scorers"):
            make = entry.load()
            self.add_scorer(make(), make)
        for entry in entry_points(group="mooring.selectors"):
            self.add_selector(entry.load())
        for entry in entry_points(group="mooring.sequencers"):
            self.add_sequencer(entry.name, entry.load())

    def add_filter(self, plugin: Filter, make: Callable[..., Filter] | None = None) -> None:
        """Register a filter; `make` creates one with options, by default its class."""
        _check("filter", plugin.name, plugin.depends_on, self._filters)
        self._filters[plugin.name] = _Registered(plugin, make or type(plugin))

    def add_scorer(self, plugin: Scorer, make: Callable[..., Scorer] | None = None) -> None:
        """Register a scorer; `make` creates one with options, by default its class."""
        _check("scorer", plugin.name, plugin.depends_on, self._scorers)
        self._scorers[plugin.name] = _Registered(plugin, make or type(plugin))

    def add_selector(self, make: Callable[..., Selector]) -> None:
        """Register a selector. `make` creates one for each profile."""
        name = make().name
        if name in self._selectors:
            raise InvalidInput(f"there is a selector {name!r} already; choose another name", code="invalid-plugin")
        self._selectors[name] = make

    def add_sequencer(self, name: str, make: Callable[[PoolPolicy], Sequencer]) -> None:
        """Register a sequencer. `make` creates one for each pool that chooses it."""
        if name in self._sequencers:
            raise InvalidInput(f"there is a sequencer {name!r} already; choose another name", code="invalid-plugin")
        self._sequencers[name] = make

    def sequencer(self, policy: PoolPolicy) -> Sequencer:
        """Return a new sequencer for a pool with this policy."""
        make = self._sequencers.get(policy.sequencer)
        if make is None:
            raise _unknown("sequencer", policy.sequencer, self._sequencers)
        return make(policy)

    def profile_of(self, policy: PoolPolicy) -> Profile:
        """Return the profile that a pool's policy describes; see `effective_policy` for an automatic one."""
        if policy.profile not in PRESETS and policy.profile != AUTOMATIC:
            raise _unknown("profile", policy.profile, (AUTOMATIC, *PRESETS))
        return self.profile(
            effective_profile(policy.profile, devices=False),
            extra_filters={name: dict(options) for name, options in policy.filters},
            weights=dict(policy.weights) if policy.weights else None,
            scorer_options={name: dict(options) for name, options in policy.scorer_options},
            selector=policy.selector,
            selector_options=dict(policy.selector_options),
        )

    def profile(
        self,
        name: str = WITHOUT_DEVICES,
        *,
        extra_filters: Sequence[str] | Mapping[str, Options] = (),
        weights: Mapping[str, int | Weight] | None = None,
        scorer_options: Mapping[str, Options] | None = None,
        selector: str | Selector | None = None,
        selector_options: Options = NO_OPTIONS,
    ) -> Profile:
        """Return a preset, with further filters, other weights and another selector if given.

        The built-in filters always apply. Further ones come before those of capacity: that a node is forbidden
        explains more than that it is also full. Options are keyword arguments of the plugin that they name.
        """
        preset = PRESETS.get(name)
        if preset is None:
            raise _unknown("profile", name, PRESETS)
        given = extra_filters if isinstance(extra_filters, Mapping) else dict.fromkeys(extra_filters, NO_OPTIONS)
        further = tuple(_made("filter", each, self._filters, options) for each, options in given.items())
        static = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on == "static")
        capacity = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on != "static")
        chosen = preset if weights is None else whole_weights(weights)
        of_scorers = {scorer: options for scorer, options in (scorer_options or {}).items() if options}
        if unused := sorted(of_scorers.keys() - chosen.keys()):
            raise InvalidInput(
                f"options for the scorer {unused[0]!r}, which has no weight; those with one are "
                f"{', '.join(sorted(chosen))}",
                code="invalid-plugin-options",
                details={"scorer": unused[0], "known": sorted(chosen)},
            )
        scorers = tuple(
            (_made("scorer", scorer, self._scorers, of_scorers.get(scorer, NO_OPTIONS)), weight)
            for scorer, weight in chosen.items()
        )
        chosen_by = selector if selector is not None else _CHOOSES_BY.get(name)
        return Profile(name, (*static, *further, *capacity), scorers, self._selector(chosen_by, selector_options))

    def _selector(self, chosen: str | Selector | None, options: Options) -> Selector | None:
        if chosen is None and options:
            chosen = HighestScore.name
        if not isinstance(chosen, str):
            return chosen
        make = self._selectors.get(chosen)
        if make is None:
            raise _unknown("selector", chosen, self._selectors)
        return _with_options("selector", chosen, make, options)


def _made(kind: str, name: str, known: Mapping[str, _Registered[Plugin]], options: Options) -> Plugin:
    registered = known.get(name)
    if registered is None:
        raise _unknown(kind, name, known)
    return registered.plugin if not options else _with_options(kind, name, registered.make, options)


def _with_options(kind: str, name: str, make: Callable[..., Plugin], options: Options) -> Plugin:
    known = sorted(signature(make).parameters)
    if unknown := sorted(options.keys() - set(known)):
        accepted = f"known are {', '.join(known)}" if known else "it takes none"
        raise InvalidInput(
            f"the {kind} {name!r} has no option {unknown[0]!r}; {accepted}",
            code="invalid-plugin-options",
            details={kind: name, "known": known},
        )
    try:
        return make(**options)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the {kind} {name!r} rejects its options: {shown(str(error))[:200]}",
            code="invalid-plugin-options",
            details={kind: name},
        ) from error


def _check(kind: str, name: str, depends_on: str, present: Mapping[str, object]) -> None:
    if name in present:
        raise InvalidInput(f"there is a {kind} {name!r} already; choose another name", code="invalid-plugin")
    if depends_on not in DEPENDENCIES:
        raise InvalidInput(
            f"{kind} {name!r} depends on {depends_on!r}; it must be one of {', '.join(DEPENDENCIES)}",
            code="invalid-plugin",
        )


def _unknown(kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    return InvalidInput(
        f"there is no {kind} {name!r}; known are {', '.join(sorted(known))}",
        code=f"unknown-{kind}",
        details={kind: name, "known": sorted(known)},
    )
