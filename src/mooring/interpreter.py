"""How a process that serves uses its interpreter."""

from __future__ import annotations

import gc
import sys


def tune() -> None:
    """To be called when all that the process needs is loaded."""
    # What is loaded is never garbage, so nobody looks for garbage among it later.
    gc.freeze()
    # A batch makes tens of thousands of objects that live until it is committed: looking among them is in vain.
    gc.set_threshold(200_000, 20, 50)
    # The database's thread goes on with its next write while another thread puts the next batch together.
    sys.setswitchinterval(0.0005)
