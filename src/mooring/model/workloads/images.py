"""Names of container images: taken apart, checked, and in the one form that they are compared by. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mooring.model.errors import InvalidInput
from mooring.model.names import shown

MOST_REPORTED = 200
"""Names of images that a node tells of: it is the large ones that are worth going where they are."""
DOCKER_HUB = "docker.io"
"""The registry of names that mention none."""
_HUB_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})
_OFFICIAL = "library"
LONGEST_REGISTRY = 127
"""Of those that one can log in to."""
_LONGEST_REPOSITORY = 255
_LONGEST_SHOWN = 80
_HEX_DIGITS = {"sha256": 64, "sha512": 128}

_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_PART = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ImageName:
    """`registry/repository:tag` or `registry/repository@digest`; `str` gives it whole, as engines understand it."""

    registry: str
    """A host, with its port where that is not the usual one."""
    repository: str
    tag: str = "latest"
    digest: str | None = None
    """Says alone which image it is: the tag beside it is only for people."""

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def short(self) -> str:
        """As a person would write it: `nginx:1.27`."""
        return str(self).removeprefix(f"{DOCKER_HUB}/").removeprefix(f"{_OFFICIAL}/")


def parse_image(text: str) -> ImageName:
    """InvalidInput, saying which part is wrong, for what is no name of an image."""
    rest, at, digest = text.partition("@")
    if at:
        _check_digest(text, digest)
    rest, tag = _without_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _wrong(text, "a tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with none of the last two")
    registry, repository = _apart(rest)
    _check_registry(text, registry)
    if len(registry) + 1 + len(repository) > _LONGEST_REPOSITORY:
        raise _wrong(text, f"without its tag it has at most {_LONGEST_REPOSITORY} characters")
    if repository != repository.lower():
        raise _wrong(text, "it is written in lower case, except for its tag")
    if not all(_PART.fullmatch(part) for part in repository.split("/")):
        raise _wrong(text, "between '/' are lower-case letters and digits, with '.', '_' and '-' only between them")
    return ImageName(registry, repository, tag or "latest", digest if at else None)


def parse_registry(text: str) -> str:
    """A registry alone, as `ImageName` has it; InvalidInput for what no name of an image can begin with."""
    registry = DOCKER_HUB if text in _HUB_ALIASES else text
    try:
        found = parse_image(f"{registry}/{_OFFICIAL}/image").registry
    except InvalidInput:
        found = None
    if found != registry or len(registry) > LONGEST_REGISTRY:
        raise InvalidInput(
            f"{shown(text[:_LONGEST_SHOWN])!r} is no registry: write its host in lower case, with its port where that"
            " is not the usual one, such as ghcr.io or registry.example.org:5000",
            code="invalid-registry",
        )
    return registry


@lru_cache(maxsize=4096)
def comparable(text: str) -> str:
    """The form in which names are compared: `docker.io/library/nginx:latest`. What is no name is only itself."""
    try:
        return str(parse_image(text))
    except InvalidInput:
        return text


def _without_tag(text: str) -> tuple[str, str | None]:
    """A colon before the last slash is that of a port."""
    head, colon, tag = text.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (text, None)


def _apart(text: str) -> tuple[str, str]:
    """What stands before the first slash is a registry if it looks like a host, otherwise the first of a path."""
    first, slash, rest = text.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, rest
    else:
        registry, repository = DOCKER_HUB, text
    if registry in _HUB_ALIASES:
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"{_OFFICIAL}/{repository}"
    return registry, repository


def _check_registry(text: str, registry: str) -> None:
    host, colon, port = registry.partition(":")
    if not _HOST.fullmatch(host):
        raise _wrong(text, "the registry before the first '/' is a host name in lower case, such as ghcr.io")
    if colon and not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
        raise _wrong(text, "the port of its registry is a number from 1 to 65535")


def _check_digest(text: str, digest: str) -> None:
    algorithm, _, value = digest.partition(":")
    length = _HEX_DIGITS.get(algorithm)
    if length is None or not re.fullmatch(rf"[0-9a-f]{{{length}}}", value, re.ASCII):
        raise _wrong(text, "a digest after '@' is sha256: with 64 or sha512: with 128 digits of 0-9 and a-f")


def _wrong(text: str, rule: str) -> InvalidInput:
    name = shown(text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "...")
    return InvalidInput(f"image {name!r} is no name of an image: {rule}", code="invalid-image", details={"image": name})
