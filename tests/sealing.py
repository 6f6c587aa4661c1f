"""Keys for tests that need some, and do not care which."""

import tempfile
from functools import cache
from pathlib import Path

from mooring import sealing
from mooring.sealing import Sealing

# Removed at the end of the process.
_FOLDER = tempfile.TemporaryDirectory()


@cache
def some_keys() -> Sealing:
    file = Path(_FOLDER.name) / "sealing-keys"
    sealing.ensure(file)
    return Sealing(file)
