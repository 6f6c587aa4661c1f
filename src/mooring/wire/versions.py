"""Which versions work together: a server with clients one version back, which say in a header what they are.

Whoever says nothing (curl, say) is taken for one that knows what it does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CLIENT_HEADER = "Mooring-Client"
PROTOCOL = 2
OLDEST_PROTOCOL = 1
"""Of clients that a server still works with."""
_WRITTEN = re.compile(r"(?P<name>[\w.-]{1,63})/(?P<version>[\w.+-]{1,63}) protocol/(?P<protocol>\d{1,9})")


class ClientVersion(NamedTuple):
    name: str
    version: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version} protocol/{self.protocol}"


def read(header: str | None) -> ClientVersion | None:
    """What a client says that it is; None where it does not, or not in these words."""
    found = _WRITTEN.fullmatch(header or "")
    return None if found is None else ClientVersion(found["name"], found["version"], int(found["protocol"]))
