"""Conversion of typed values without pydantic, whose import takes longer than most commands.

Typer converts the values of all parameters with pydantic, also those that are not given. Here, plain and valid values
of the common types are converted directly, and those of an option with its own parser by that parser. Everything else
takes Typer's own way, so that its rules and its messages stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_UNKNOWN = object()


def convert_fast(parameters: Iterable[Any]) -> None:
    """Let parameters of a command convert their plain values without pydantic."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            kind: TypeDescriptor = parameter.type_descriptor
            parameter._runtime_param = _FastParameter(kind.parameter_info, kind.annotation, kind)


@dataclass(frozen=True)
class _FastParameter(RuntimeParam):
    kind: TypeDescriptor

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        converted = _UNKNOWN
        if self.parameter_info.parser is not None:
            return self.parameter_info.parser(value)
        if self.kind.file_annotation is None:
            converted = self._converted(self.annotation, value)
        if converted is not _UNKNOWN:
            return converted
        return build_runtime_param(self.kind)._coerce_value(value, param=param, ctx=ctx)

    def _converted(self, annotation: Any, value: Any) -> Any:
        if get_origin(annotation) is list and isinstance(value, list | tuple):
            each = [self._converted(get_args(annotation)[0], item) for item in value]
            return _UNKNOWN if any(item is _UNKNOWN for item in each) else each
        if annotation is str:
            return value if isinstance(value, str) else _UNKNOWN
        if annotation is int:
            return self._number(value)
        if get_origin(annotation) is Literal:
            return next((choice for choice in get_args(annotation) if _same(choice, value)), _UNKNOWN)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return next((member for member in annotation if _same(member.value, value)), _UNKNOWN)
        return _UNKNOWN

    def _number(self, value: Any) -> Any:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            return _UNKNOWN
        low, high = self.parameter_info.min, self.parameter_info.max
        within = (low is None or value >= low) and (high is None or value <= high)
        return value if within else _UNKNOWN


def _same(choice: object, value: object) -> bool:
    """Return whether a value names a choice. Words are shown with `-` between them; `_` is accepted."""
    return choice == value or (isinstance(value, str) and choice == value.replace("_", "-"))
