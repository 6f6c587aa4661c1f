"""Command options that are generated from the fields of a wire model.

An option takes its type, bounds and help from its field, so that each field is described once, in `wire`. Importing the
models takes about as long as importing all other commands, so a command loads its model only when it is parsed or
described.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from mooring.cli.help import Command
from mooring.cli.input.durations import parse_seconds
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_UNITS = ("seconds", "days")
_STORAGE_LIMIT = 2**31 - 1
"""The upper bound of fields whose only limit is the column that holds them."""


@dataclass(frozen=True, slots=True)
class ModelOption:
    """One option for one field of a request."""

    path: str
    """The field's name, after the names of the models around it: `bookings.lead_seconds`."""
    flag: str = ""
    """Empty: the field's name without its unit, so that `ageing_seconds` becomes `--ageing`."""
    metavar: str | None = None
    """None: derived from the field's type and unit."""
    choices: tuple[str, ...] = ()
    """Values that the command accepts in addition to those of the field."""
    read: Callable[[Any, str], Any] | None = None
    """Turns the typed text, or texts, and the flag's name into the field's value."""
    as_one_text: bool = False
    """The option takes a whole list as one text, which `read` splits, instead of one element at a time."""
    panel: str | None = None

    @property
    def parameter(self) -> str:
        return self.path.replace(".", "_")


def command_with_options(load_model: Callable[[], type[BaseModel]], options: Sequence[ModelOption]) -> type[Command]:
    """Return a command class that adds the options to those of the command's function.

    The function reads their values with `given_fields(context)`.
    """

    class ModelCommand(Command):
        _params: list[Any]
        _complete = False

        @property
        def params(self) -> list[Any]:
            """The parameters in one list, to which Typer itself adds some."""
            if not self._complete:
                self._complete = True
                first_option = sum(each.param_type_name == "argument" for each in self._params)
                self._params[first_option:first_option] = _parameters(load_model(), options)
            return self._params

        @params.setter
        def params(self, own: list[Any]) -> None:
            self._params = list(own)

        def invoke(self, ctx: Any) -> Any:
            model = load_model()
            ctx.obj = {}
            for option in options:
                value = ctx.params.pop(option.parameter)
                # Typer returns an empty tuple for a repeatable option and False for a switch that is not given.
                if value is None or value == () or (value is False and _is_switch(_field(model, option.path))):
                    continue
                _set(ctx.obj, option.path, _read(option, model, value))
            return super().invoke(ctx)

    return ModelCommand


def given_fields(context: typer.Context) -> dict[str, Any]:
    """Return the fields whose options were given, nested as in the model."""
    fields: dict[str, Any] = context.obj
    return fields


def read_numbers(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Return `NAME=N` texts as a mapping."""
    from mooring.cli.input.requests import assignments

    numbers: dict[str, int] = {}
    for name, amount in assignments(texts, option=flag).items():
        if not amount.isdecimal():
            raise InvalidInput(f"{flag} {name}={amount[:20]}: {amount[:20]!r} is not a whole number")
        numbers[name] = int(amount)
    return numbers


def read_texts(texts: Iterable[str], flag: str) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a mapping."""
    from mooring.cli.input.requests import assignments

    return assignments(texts, option=flag)


def _parameters(model: type[BaseModel], options: Sequence[ModelOption]) -> list[Any]:
    """Let Typer turn a generated signature into parameters, so that they look like those written by hand."""

    def command(**_: Any) -> None: ...

    parameters = list(_signature(model, options))
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return list(typer.main.get_command(app).params)


def _signature(model: type[BaseModel], options: Sequence[ModelOption]) -> Iterator[inspect.Parameter]:
    for option in options:
        field = _field(model, option.path)
        kind: Any = str if option.as_one_text else _type(field.annotation)
        if option.choices:
            kind = Literal[(*option.choices, *get_args(kind))]
        if get_origin(kind) is Literal:
            kind = Literal[tuple(choice.replace("_", "-") for choice in get_args(kind))]
        if _is_duration(option, kind):
            kind = str
        repeated = get_origin(kind) is list
        low, high = _bounds(field) if kind is int else (None, None)
        switch = _is_switch(field)
        flag = _flag(option)
        described = typer.Option(
            f"{flag}/--no-{flag.removeprefix('--')}" if kind is bool and not switch else flag,
            metavar=option.metavar or _metavar(option, field),
            help=_help(option, field, kind=_bare(field.annotation), repeated=repeated),
            min=low,
            max=high,
            rich_help_panel=option.panel,
        )
        yield inspect.Parameter(
            option.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if switch else None,
            annotation=Annotated[bool if switch else kind | None, described],
        )


def _read(option: ModelOption, model: type[BaseModel], value: Any) -> Any:
    if option.read is not None:
        return option.read(value, _flag(option))
    bare = _bare(_field(model, option.path).annotation)
    if get_origin(bare) is dict:
        return read_numbers(value, _flag(option))
    if get_origin(bare) is Literal:
        return next((choice for choice in get_args(bare) if choice.replace("_", "-") == value), value)
    if _is_duration(option, bare):
        return int(parse_seconds(value))
    return [str(each) for each in value] if isinstance(value, list | tuple) else value


def _help(option: ModelOption, field: FieldInfo, *, kind: Any, repeated: bool) -> str:
    """Return the description of a field, with the default of a duration as users write it."""
    from mooring.model.calendar.durations import format_duration

    text = field.description or ""
    if _is_duration(option, kind):
        text = re.sub(r"\(default ([1-9]\d*)\)", lambda found: f"(default {format_duration(int(found[1]))})", text)
    return f"{text.removesuffix('.')}; repeatable." if repeated else text


def _is_duration(option: ModelOption, kind: Any) -> bool:
    return kind is int and option.path.endswith("_seconds")


def _set(fields: dict[str, Any], path: str, value: Any) -> None:
    *outer, last = path.split(".")
    for name in outer:
        fields = fields.setdefault(name, {})
    fields[last] = value


def _field(model: type[BaseModel], path: str) -> FieldInfo:
    *outer, last = path.split(".")
    for name in outer:
        model = _bare(model.model_fields[name].annotation)
    return model.model_fields[last]


def _is_switch(field: FieldInfo) -> bool:
    """Return whether the option can only turn the field on: it is off by default, not unset."""
    return field.annotation is bool and field.default is False


def _type(annotation: Any) -> Any:
    """Return the type that Typer reads for a field."""
    bare = _bare(annotation)
    if get_origin(bare) is dict:
        return list[str]
    if get_origin(bare) is list:
        element = _bare(get_args(bare)[0])
        # Typer accepts a list of an enum, but not of a Literal.
        return list[StrEnum("Choice", [*get_args(element)]) if get_origin(element) is Literal else element]  # type: ignore[misc]
    return bare


def _bare(annotation: Any) -> Any:
    """Return a type without its constraints, None and the empty text that removes a value."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _bare(next(part for part in get_args(annotation) if part not in (NoneType, Literal[""])))
    return annotation


def _bounds(field: FieldInfo) -> tuple[int | None, int | None]:
    """Return the smallest and the largest value, from the field's constraints or those of its type."""
    from annotated_types import Ge, Le

    constraints = [*field.metadata, *_inner_constraints(field.annotation)]
    low = next((each.ge for each in constraints if isinstance(each, Ge)), None)
    high = next((each.le for each in constraints if isinstance(each, Le)), None)
    return low, None if high == _STORAGE_LIMIT else high  # type: ignore[return-value]


def _inner_constraints(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _inner_constraints(part)
    elif get_origin(annotation) is Annotated:
        for each in get_args(annotation)[1:]:
            yield from getattr(each, "metadata", (each,))


def _flag(option: ModelOption) -> str:
    if option.flag:
        return option.flag
    name = option.path.rpartition(".")[2]
    for unit in _UNITS:
        name = name.removesuffix(f"_{unit}")
    return f"--{name.replace('_', '-')}"


def _metavar(option: ModelOption, field: FieldInfo) -> str | None:
    unit = option.path.rpartition("_")[2]
    if unit in _UNITS:
        return "TIME" if unit == "seconds" else unit.upper()
    bare = _bare(field.annotation)
    if get_origin(bare) is dict:
        return "NAME=N"
    return {int: "N", str: option.path.rpartition(".")[2].upper()}.get(bare)
