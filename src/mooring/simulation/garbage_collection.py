"""Garbage collection during a replay, which makes many objects and few cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (200_000, 20, 100)


@contextmanager
def less_garbage_collection() -> Iterator[None]:
    """Search for cyclic garbage less often: a replay makes few cycles, and each search visits many objects.

    Objects that the caller has frozen stay so.
    """
    before = gc.get_threshold()
    frozen_by_caller = gc.get_freeze_count() > 0
    if not frozen_by_caller:
        gc.collect()
        gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen_by_caller:
            gc.unfreeze()
