"""Container image names: parsing, checks, and the canonical form for comparisons. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mooring.model.errors import InvalidInput
from mooring.model.names import shown

MAX_REPORTED_IMAGES = 200
"""Maximum images that a node reports, the largest first: those matter for image locality."""
DOCKER_HUB = "docker.io"
"""The registry of names without one."""
_HUB_ALIASES = frozenset({"index.docker.io", "registry-1.docker.io"})
_OFFICIAL = "library"
MAX_REGISTRY_LENGTH = 127
"""Maximum length of a registry for logins."""
_MAX_REPOSITORY_LENGTH = 255
_MAX_SHOWN_LENGTH = 80
_HEX_DIGITS = {"sha256": 64, "sha512": 128}

_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_PART = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ImageName:
    """`registry/repository:tag` or `registry/repository@digest`; `str` returns the full name for engines."""

    registry: str
    """A host, with its port if it is not the default."""
    repository: str
    tag: str = "latest"
    digest: str | None = None
    """Identifies the image; a tag in addition to it is informational."""

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def short(self) -> str:
        """The short form: `nginx:1.27`."""
        return str(self).removeprefix(f"{DOCKER_HUB}/").removeprefix(f"{_OFFICIAL}/")


def parse_image(text: str) -> ImageName:
    """Return the parsed name; raise InvalidInput that names the invalid part."""
    rest, at, digest = text.partition("@")
    if at:
        _check_digest(text, digest)
    rest, tag = _without_tag(rest)
    if tag is not None and not _TAG.fullmatch(tag):
        raise _wrong(text, "a tag is 1 to 128 letters, digits, '_', '.' and '-', and begins with none of the last two")
    registry, repository = _split_registry(rest)
    _check_registry(text, registry)
    if len(registry) + 1 + len(repository) > _MAX_REPOSITORY_LENGTH:
        raise _wrong(text, f"without its tag it has at most {_MAX_REPOSITORY_LENGTH} characters")
    if repository != repository.lower():
        raise _wrong(text, "it is written in lower case, except for its tag")
    if not all(_PART.fullmatch(part) for part in repository.split("/")):
        raise _wrong(text, "between '/' are lower-case letters and digits, with '.', '_' and '-' only between them")
    return ImageName(registry, repository, tag or "latest", digest if at else None)


def parse_registry(text: str) -> str:
    """Return a registry in the form of `ImageName`; raise InvalidInput for an invalid one."""
    registry = DOCKER_HUB if text in _HUB_ALIASES else text
    try:
        found = parse_image(f"{registry}/{_OFFICIAL}/image").registry
    except InvalidInput:
        found = None
    if found != registry or len(registry) > MAX_REGISTRY_LENGTH:
        raise InvalidInput(
            f"{shown(text[:_MAX_SHOWN_LENGTH])!r} is not a registry: write its host in lower case, with its port if"
            " that is not the default, such as ghcr.io or registry.example.org:5000",
            code="invalid-registry",
        )
    return registry


@lru_cache(maxsize=4096)
def comparable(text: str) -> str:
    """Return the canonical form: `docker.io/library/nginx:latest`. An invalid name is returned as it is."""
    try:
        return str(parse_image(text))
    except InvalidInput:
        return text


def _without_tag(text: str) -> tuple[str, str | None]:
    """Split off the tag; a colon before the last slash belongs to a port."""
    head, colon, tag = text.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (text, None)


def _split_registry(text: str) -> tuple[str, str]:
    """Split off the registry: the part before the first slash if it looks like a host, else the default."""
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
    name = shown(text if len(text) <= _MAX_SHOWN_LENGTH else text[: _MAX_SHOWN_LENGTH - 3] + "...")
    return InvalidInput(
        f"image {name!r} is not a valid image name: {rule}", code="invalid-image", details={"image": name}
    )
