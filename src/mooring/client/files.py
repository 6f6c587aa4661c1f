"""Manifests in YAML or JSON files, with several documents per file; errors have file and line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mooring.model.errors import InvalidInput
from mooring.model.names import shown
from mooring.model.resources.slots import slot_type
from mooring.wire.problems import field_path, sentence
from mooring.wire.workloads.manifests import MANIFEST, Manifest

_MAX_BYTES = 1024 * 1024
_MAX_VALUES = 100_000
"""Maximum values in one file, with those that aliases repeat."""
_DEEPEST = 50
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_YAML = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Document:
    """One workload in a file."""

    file: str
    number: int
    """The line in the file, from 1."""
    line: int
    manifest: Manifest

    @property
    def location(self) -> str:
        return _location(self.file, self.number, self.line)


def read_documents(path: str) -> list[Document]:
    """Of a file, of all files of a folder by their names, or of standard input (`-`): all of them are right."""
    found = [document for name, text in _texts(path) for document in _documents(name, text)]
    if not found:
        raise InvalidInput(f"there is no workload in {shown(path)}", code="invalid-file")
    known: dict[str, Document] = {}
    for document in found:
        other = known.setdefault(document.manifest.name, document)
        if other is not document:
            raise InvalidInput(
                f"{document.location}: {document.manifest.name!r} appears twice, first in {other.location}",
                code="invalid-file",
            )
    return found


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", _text(sys.stdin.buffer.read(_MAX_BYTES + 1), "standard input")
        return
    root = Path(path)
    try:
        files = [root]
        if root.is_dir():
            files = sorted(each for each in root.iterdir() if _is_manifest(each) and each.is_file())
        for file in files:
            with file.open("rb") as stream:
                yield str(file), _text(stream.read(_MAX_BYTES + 1), str(file))
    except OSError as error:
        raise InvalidInput(f"cannot read {shown(path)}: {error.strerror}", code="invalid-file") from None


def _is_manifest(file: Path) -> bool:
    # The schema for editors is next to the files that they edit.
    return file.suffix in _SUFFIXES and not file.name.endswith(".schema.json")


def _text(content: bytes, file: str) -> str:
    if len(content) > _MAX_BYTES:
        raise InvalidInput(f"{shown(file)} is larger than {_MAX_BYTES >> 20} MiB", code="invalid-file")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{shown(file)} is not UTF-8", code="invalid-file") from None
    # JSON is YAML except for tabs, which it has between values only.
    return text.replace("\t", " ") if text.lstrip()[:1] in ("{", "[") else text


def _documents(file: str, text: str) -> Iterator[Document]:
    reader, number = _Reader(), 0
    try:
        for node in yaml.compose_all(text, _Loader):
            number += 1
            if isinstance(node, yaml.ScalarNode) and not node.value:
                # Between two `---` there may be nothing.
                continue
            yield _document(file, number, node, reader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = _location(file, number + 1, 1 if mark is None else mark.line + 1)
        raise InvalidInput(f"{where}: {error.problem or error.context}", code="invalid-file") from None
    except RecursionError:
        raise InvalidInput(f"{shown(file)}: this is nested too deeply", code="invalid-file") from None
    except yaml.YAMLError as error:
        raise InvalidInput(f"{shown(file)}: {shown(str(error))}", code="invalid-file") from None


def _document(file: str, number: int, node: yaml.Node, reader: _Reader) -> Document:
    try:
        value = reader.value(node)
    except _Unreadable as problem:
        raise InvalidInput(f"{_location(file, number, problem.line)}: {problem}", code="invalid-file") from None
    try:
        manifest = MANIFEST.validate_python(value)
        problems = list(_missing_units(manifest, node))
    except ValidationError as refused:
        problems = [_problem(error, node) for error in refused.errors(include_url=False)]
    if problems:
        lines = [f"{_location(file, number, line)}: {words}" for line, words in sorted(set(problems))]
        raise InvalidInput("; ".join(lines), code="invalid-file")
    return Document(file, number, _line(node), manifest)


def _missing_units(manifest: Manifest, node: yaml.Node) -> Iterator[tuple[int, str]]:
    """Yield the line of each invalid amount and of each amount of bytes without a unit, and the problem."""
    for part in ("init_containers", "containers"):
        for number, container in enumerate(getattr(manifest, part)):
            amounts = [
                *((("resources", slot), slot, amount) for slot, amount in container.resources.items()),
                *((("limits", slot), slot, amount) for slot, amount in container.limits.items()),
                *([] if container.shared_memory is None else [(("shared_memory",), "memory", container.shared_memory)]),
            ]
            for field, slot, amount in amounts:
                path = (part, number, *field)
                try:
                    slot_type(slot).parse_with_unit(amount)
                except InvalidInput as problem:
                    yield _follow(node, path)[0], f"{field_path(path)}: {problem.message}"


def _problem(error: Any, node: yaml.Node) -> tuple[int, str]:
    """Return the line of an invalid field, and the problem."""
    # The kind that was chosen is no part of the document.
    path = error["loc"][1:]
    line, known = _follow(node, path)
    words = sentence(error)
    if error["type"] == "string_type" and isinstance(error["input"], bool | int):
        words += f"; write it in quotes: '{str(error['input']).lower()}'"
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        return line, "kind: write one of deployment, session and lab"
    field = field_path(path if error["type"] in ("missing", "extra_forbidden") else path[:known])
    return line, f"{field or 'the document'}: {words}"


def _follow(node: yaml.Node, path: tuple[int | str, ...]) -> tuple[int, int]:
    """Return the line of the value at a path, and the length of the path that exists."""
    line = _line(node)
    for known, step in enumerate(path):
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = _line(node)
        elif isinstance(node, yaml.MappingNode):
            keys = [(key, value) for key, value in node.value if key.value == step]
            if not keys:
                return line, known
            line, node = _line(keys[0][0]), keys[0][1]
        else:
            return line, known
    return line, len(path)


def _location(file: str, number: int, line: int) -> str:
    return f"{shown(file)}, document {number}, line {line}"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Unreadable(Exception):
    def __init__(self, node: yaml.Node, problem: str) -> None:
        super().__init__(problem)
        self.line = _line(node)


class _Loader(yaml.SafeLoader):
    """A YAML loader whose scalars are null, true, false, integers or text: fractions, times and `no` stay text."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(f"{_YAML}null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""])
_Loader.add_implicit_resolver(f"{_YAML}bool", re.compile(r"^(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(f"{_YAML}int", re.compile(r"^[-+]?[0-9]{1,30}$"), list("-+0123456789"))


class _Reader:
    """Construct values with a limit on their number: a few lines of aliases could expand to more than all memory."""

    def __init__(self) -> None:
        self._left = _MAX_VALUES

    def value(self, node: yaml.Node, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _Unreadable(node, "this expands to more than a file may contain")
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, depth + 1) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth + 1)
        assert isinstance(node, yaml.ScalarNode)
        match node.tag.removeprefix(_YAML):
            case "str":
                return node.value
            case "null":
                return None
            case "bool":
                return node.value == "true"
            case "int":
                return int(node.value)
        raise _Unreadable(node, f"{shown(node.tag)[:60]} is not supported here")

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, part in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _Unreadable(key, "the name of a field must be text")
            value = self.value(part, depth)
            if key.value == "<<" and key.style is None:
                for each in value if isinstance(value, list) else [value]:
                    if not isinstance(each, dict):
                        raise _Unreadable(part, "only fields can be merged")
                    merged = each | merged
            elif key.value in result:
                raise _Unreadable(key, f"{shown(key.value)[:60]} is there twice")
            else:
                result[key.value] = value
        return merged | result
