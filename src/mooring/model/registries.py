"""Registries of images, by the one name that logins and images have for them. Pure."""

from __future__ import annotations

import re

from mooring.model.errors import InvalidInput
from mooring.model.names import shown

DOCKER_HUB = "docker.io"
"""The registry of images that name none."""
LONGEST = 127
_HUB_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})
_REGISTRY = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)


def check_registry(text: str) -> str:
    """The name in its one form; InvalidInput for what is no host."""
    if len(text) > LONGEST or not _REGISTRY.fullmatch(text):
        raise InvalidInput(
            f"{shown(text[:80])!r} is no registry: write its host, with its port where that is not the usual one,"
            " such as ghcr.io or registry.example.org:5000",
            code="invalid-registry",
        )
    return DOCKER_HUB if text in _HUB_ALIASES else text


def registry_of(image: str) -> str:
    """What stands before the first slash is a registry if it looks like a host."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return DOCKER_HUB if first in _HUB_ALIASES else first
    return DOCKER_HUB
