"""The default data folder of a server. Apart from the settings, so that commands find it without their schema."""

from __future__ import annotations

import os
from pathlib import Path


def default_data() -> Path:
    """One folder for all state: the system's place for root, the person's own otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/mooring")
    base = os.environ.get("XDG_DATA_HOME")
    # The specification says that a relative path there is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "mooring"
