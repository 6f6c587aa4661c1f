"""Tuning of the interpreter for a server process."""

from __future__ import annotations

import gc
import sys


def tune() -> None:
    """Tune garbage collection and thread switching; call this once everything is loaded."""
    # Loaded modules never become garbage: exclude them from collection.
    gc.freeze()
    # Every collection stops all threads for as long as its objects take. Small ones keep the pauses at milliseconds;
    # what survives, such as the tens of thousands of objects of a batch, is looked at again after 20 of them.
    gc.set_threshold(10_000, 20, 1_000)
    # The database's thread continues with its next write while another thread prepares the next batch.
    sys.setswitchinterval(0.0005)
