"""Version compatibility: a server supports clients one version back, which identify themselves in a header.

A client without the header (such as curl) is always accepted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

CLIENT_HEADER = "Mooring-Client"
PROTOCOL = 2
OLDEST_PROTOCOL = 1
"""The oldest client protocol that a server supports."""
_WRITTEN = re.compile(r"(?P<name>[\w.-]{1,63})/(?P<version>[\w.+-]{1,63}) protocol/(?P<protocol>\d{1,9})")


class ClientVersion(NamedTuple):
    name: str
    version: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version} protocol/{self.protocol}"


def read(header: str | None) -> ClientVersion | None:
    """Return the version that a client sends; None if it sends none, or in another form."""
    found = _WRITTEN.fullmatch(header or "")
    return None if found is None else ClientVersion(found["name"], found["version"], int(found["protocol"]))
