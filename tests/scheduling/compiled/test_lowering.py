"""The profiles that the kernels can apply."""

from __future__ import annotations

import pytest

from mooring.scheduling import Cluster, Profile, Registry
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.compiled.lowering import lower_profile
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.profiles import PRESETS
from mooring.scheduling.plugins.scorers.resources import ResourcesScorer


class HalfOfTheResources(ResourcesFilter):
    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return super().feasible(shape, cluster, rows[: len(rows) // 2])


class NoResources(ResourcesScorer):
    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        return super().score(shape, cluster, rows) * 0


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_that_choose_the_highest_score_are_lowered(name: str) -> None:
    profile = Registry().profile(name)
    assert (lower_profile(profile) is not None) == (profile.selector is None and name != "lab")


def test_a_subclass_is_not_lowered_as_its_parent() -> None:
    assert lower_profile(Profile("parents", (ResourcesFilter(),), ((ResourcesScorer(), 1),))) is not None
    assert lower_profile(Profile("filter", (HalfOfTheResources(),), ((ResourcesScorer(), 1),))) is None
    assert lower_profile(Profile("scorer", (ResourcesFilter(),), ((NoResources(), 1),))) is None


def test_a_filter_with_settings_that_the_kernels_lack_is_not_lowered() -> None:
    ignoring = ResourcesFilter(frozenset(("gpu",)))
    assert lower_profile(Profile("ignoring", (ignoring,), ((ResourcesScorer(), 1),))) is None
