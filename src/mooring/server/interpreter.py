"""Tuning of the interpreter for a server process."""

from __future__ import annotations

import gc
import sys


def tune() -> None:
    """Tune garbage collection and thread switching; call this once everything is loaded."""
    # Loaded modules never become garbage: exclude them from collection.
    gc.freeze()
    # A batch makes tens of thousands of objects that live until it is committed: collecting them finds nothing.
    gc.set_threshold(200_000, 20, 50)
    # The database's thread continues with its next write while another thread prepares the next batch.
    sys.setswitchinterval(0.0005)
