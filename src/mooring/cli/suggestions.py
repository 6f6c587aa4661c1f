"""Suggestions for mistyped names, from the names that the user may see."""

from __future__ import annotations

from difflib import get_close_matches

from mooring.model.errors import MooringError

# Where the names of a noun come from, and the field that holds them.
_SOURCES = {
    "workload": ("/api/workloads", "workloads", "name"),
    "session": ("/api/sessions", "workloads", "name"),
    "deployment": ("/api/workloads", "workloads", "name"),
    "node": ("/api/nodes", "nodes", "name"),
    "pool": ("/api/pools", "pools", "name"),
    "project": ("/api/projects", None, "name"),
    "domain": ("/api/domains", None, "name"),
    "user": ("/api/users", None, "username"),
    "policy": ("/api/policies", None, "name"),
}
_SECONDS = 2.0
_NAMES = 1000


def suggestion(error: MooringError) -> str | None:
    """Return the names nearest to the one that does not exist, in the words of a hint."""
    from mooring.cli.connection import last_server

    noun, name = str(error.details.get("noun")), str(error.details.get("name", ""))
    if noun not in _SOURCES or not name or last_server() is None:
        return None
    try:
        names = _names(*_SOURCES[noun])
    except Exception:  # the first error is what counts
        return None
    near = get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else None


def _names(path: str, container: str | None, field: str) -> list[str]:
    from mooring.cli.connection import last_server, read
    from mooring.client.quick import document

    query = {"limit": str(_NAMES), "all": "true"} if container == "workloads" else {}
    found = document(read(last_server(), path, query, timeout_seconds=_SECONDS))
    return [str(each[field]) for each in (found[container] if container else found)]
