"""The JSON Schema of manifests, with which editors complete, check and explain them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from mooring.wire.workloads.manifests import (
    MANIFEST,
    DeploymentManifest,
    LabManifest,
    SessionManifest,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
JsonSchema = dict[str, Any]


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one document, with descriptions of its fields."""
    made = MANIFEST.json_schema()
    _describe(made["$defs"], _models(DeploymentManifest, SessionManifest, LabManifest))
    _take_fractions(made)
    return {"$schema": _DIALECT, "title": "Mooring", **made}


def described_schema(root: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a model, with the docstrings of its fields as descriptions."""
    made = root.model_json_schema()
    _describe({**made["$defs"], root.__name__: made}, _models(root))
    return {"$schema": _DIALECT, **made, "title": title}


def _describe(definitions: Mapping[str, Any], models: Iterable[type[BaseModel]]) -> None:
    by_name = {model.__name__: model for model in models}
    for name, definition in definitions.items():
        for field, words in _docstrings(by_name[name]).items():
            definition["properties"][field].setdefault("description", words)


def _models(*roots: type[BaseModel]) -> set[type[BaseModel]]:
    """Return these models and all models of their fields."""
    found: set[type[BaseModel]] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind not in found:
                found.add(kind)
                waiting += [field.annotation for field in kind.model_fields.values()]
        else:
            waiting += getattr(kind, "__args__", ())
    return found


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of its fields, and of those of its bases."""
    words: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    words[name] = " ".join(text.split())
    return words


def _take_fractions(part: Any) -> None:
    """Amounts may be written as fractions in manifests, where they are read exactly."""
    if isinstance(part, dict):
        if part.get("type") == "integer" and part.get("maximum") == 2**63 - 1:
            part["type"] = "number"
        for inner in part.values():
            _take_fractions(inner)
    elif isinstance(part, list):
        for inner in part:
            _take_fractions(inner)
