"""Keys for tests that need some, and do not care which."""

import tempfile
from functools import cache
from pathlib import Path

from mooring.security import encryption
from mooring.security.encryption import SecretBox

# Removed at the end of the process.
_FOLDER = tempfile.TemporaryDirectory()


@cache
def some_keys() -> SecretBox:
    file = Path(_FOLDER.name) / "sealing-keys"
    encryption.ensure(file)
    return SecretBox(file)
