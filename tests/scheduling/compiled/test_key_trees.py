"""The root of a tree of keys is its highest key, however many levels the tree has."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.scheduling.compiled.key_trees import FAN_OUT, TOP, build_tree, tree_length, update_tree
from mooring.scheduling.compiled.layout import INFEASIBLE
from tests.selection import examples

sizes = st.one_of(st.integers(1, 2 * TOP), st.integers(1, TOP * FAN_OUT + FAN_OUT), st.just(20_000))
keys = st.one_of(st.just(INFEASIBLE), st.integers(0, 5), st.integers(0, 1 << 60))


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), sizes, st.integers(0, 3))
def test_the_root_is_the_highest_key_after_every_change(data: st.DataObject, leaves: int, trees_before: int) -> None:
    start, chance = trees_before * tree_length(leaves), np.random.default_rng(leaves)
    tree = np.full(start + tree_length(leaves), 1 << 61, dtype=np.int64)
    own = tree[start : start + leaves]
    own[:] = chance.integers(0, 1 << 60, leaves)
    assert build_tree(tree, start, leaves) == own.max()
    for _ in range(4):
        changed = data.draw(st.lists(st.integers(0, leaves - 1), min_size=1, max_size=30, unique=True))
        # The keys that are the highest fall as often as others rise.
        changed = sorted({*changed, int(own.argmax())})
        own[changed] = [data.draw(keys) for _ in changed]
        assert update_tree(tree, start, leaves, np.array(changed, dtype=np.int32), len(changed)) == own.max()
    assert (tree[:start] == 1 << 61).all()


def test_a_tree_is_hardly_longer_than_its_leaves() -> None:
    assert [tree_length(leaves) for leaves in (1, TOP, TOP + 1, 8192)] == [1, TOP, 80 + 5, 8192 + 512 + 32]
