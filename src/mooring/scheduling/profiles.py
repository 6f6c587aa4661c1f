"""Profiles: which filters and scorers a pool is scheduled with, composed by name from the registry of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from mooring.model.errors import InvalidInput
from mooring.scheduling.filters import BUILT_IN_FILTERS
from mooring.scheduling.plugins import DEPENDENCIES, Filter, Scorer
from mooring.scheduling.scorers import BUILT_IN_SCORERS

DEFAULT_PROFILE = "locality"

PRESETS: Mapping[str, Mapping[str, int]] = {
    "locality": {"resources": 40, "load": 30, "locality": 30},
}
"""The weights of the scorers by the name of the profile."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Filters in the order in which they are named as the reason, and scorers with their weights."""

    name: str
    filters: tuple[Filter, ...]
    scorers: tuple[tuple[Scorer, int], ...]

    def __post_init__(self) -> None:
        if not self.scorers or any(weight <= 0 for _, weight in self.scorers):
            raise InvalidInput(f"profile {self.name!r} needs scorers with weights above 0", code="invalid-profile")


class Registry:
    """The plugins by name: the built-in ones and those that were added."""

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {plugin.name: plugin for plugin in BUILT_IN_FILTERS}
        self._scorers: dict[str, Scorer] = {plugin.name: plugin for plugin in BUILT_IN_SCORERS}

    def discover(self) -> None:
        """Add what installed packages offer under the entry points `mooring.filters` and `mooring.scorers`.

        An entry point names a class (or function) without arguments that makes the plugin.
        """
        for entry in entry_points(group="mooring.filters"):
            self.add_filter(entry.load()())
        for entry in entry_points(group="mooring.scorers"):
            self.add_scorer(entry.load()())

    def add_filter(self, plugin: Filter) -> None:
        _check("filter", plugin.name, plugin.depends_on, self._filters)
        self._filters[plugin.name] = plugin

    def add_scorer(self, plugin: Scorer) -> None:
        _check("scorer", plugin.name, plugin.depends_on, self._scorers)
        self._scorers[plugin.name] = plugin

    def profile(
        self,
        name: str = DEFAULT_PROFILE,
        *,
        extra_filters: Sequence[str] = (),
        weights: Mapping[str, int] | None = None,
    ) -> Profile:
        """A preset by its name, with further filters and other weights where given.

        The built-in filters always hold. Further ones are asked before those of capacity: that a node is forbidden
        explains more than that it is also full.
        """
        preset = PRESETS.get(name)
        if preset is None:
            raise _unknown("profile", name, PRESETS)
        further = tuple(self._filter(filter_name) for filter_name in extra_filters)
        static = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on == "static")
        capacity = tuple(plugin for plugin in BUILT_IN_FILTERS if plugin.depends_on != "static")
        chosen = preset if weights is None else weights
        scorers = tuple((self._scorer(scorer), weight) for scorer, weight in chosen.items())
        return Profile(name, (*static, *further, *capacity), scorers)

    def _filter(self, name: str) -> Filter:
        plugin = self._filters.get(name)
        if plugin is None:
            raise _unknown("filter", name, self._filters)
        return plugin

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
