"""Trees over the keys of a group of rows, to find the highest key and to keep it current as single keys change.

The leaves come first in the array, then level by level the highest key of each `FAN_OUT` neighbours, until at most
`TOP` nodes are left; the highest of these is the root, which is stored elsewhere. One block of neighbours is two cache
lines and is compared with vector instructions, so that a changed key costs a few cache lines even in a large tree.
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import INFEASIBLE, Int32s, Int64s, Number

FAN_OUT_BITS = 4
FAN_OUT = 1 << FAN_OUT_BITS
TOP = 64


def tree_length(leaves: int) -> int:
    """Return the number of array elements that a tree takes."""
    width = length = _padded(leaves)
    while width > TOP:
        width = _padded(width >> FAN_OUT_BITS)
        length += width
    return length


def _padded(width: int) -> int:
    """Return the width of a level, which ends with a whole block if there is a level above it."""
    return width if width <= TOP else (width + FAN_OUT - 1) & -FAN_OUT


_padded_width = inlined(_padded)


@compiled
def build_tree(tree: Int64s, start: Number, leaves: Number) -> Number:
    """Compute the nodes above the leaves of the tree at `start`. Return the root."""
    width = _padded_width(leaves)
    for leaf in range(leaves, width):
        tree[start + leaf] = INFEASIBLE
    while width > TOP:
        above, nodes = start + width, width >> FAN_OUT_BITS
        for node in range(nodes):
            tree[above + node] = highest_of_block(tree, start + (node << FAN_OUT_BITS))
        start, width = above, _padded_width(nodes)
        for node in range(nodes, width):
            tree[start + node] = INFEASIBLE
    return highest(tree, start, width)


@inlined
def update_tree(tree: Int64s, start: Number, leaves: Number, changed: Int32s, count: Number) -> Number:
    """Compute the ancestors of `count` changed leaves of the tree at `start` again. Return the root.

    `changed` holds the numbers of the leaves and is overwritten. The levels are done one after the other, since the
    processor would stall on reading a block right after one of its keys is written.
    """
    width = _padded_width(leaves)
    while width > TOP:
        above, next_count = start + width, 0
        for number in range(count):
            node = np.int64(changed[number] >> FAN_OUT_BITS)
            best = highest_of_block(tree, start + (node << FAN_OUT_BITS))
            before = tree[above + node]
            tree[above + node] = best
            changed[next_count] = node
            next_count += best != before
        start, width, count = above, _padded_width(width >> FAN_OUT_BITS), next_count
    return highest(tree, start, width)


@inlined
def highest_of_block(tree: Int64s, first: Number) -> Number:
    best = np.int64(INFEASIBLE)
    for at in range(FAN_OUT):
        best = max(best, tree[first + at])
    return best


@inlined
def highest(tree: Int64s, start: Number, width: Number) -> Number:
    best = np.int64(INFEASIBLE)
    for at in range(width):
        best = max(best, tree[start + at])
    return best
