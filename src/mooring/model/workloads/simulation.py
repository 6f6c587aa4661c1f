"""The behaviour of simulated tasks, given by labels of their workload. Real tasks ignore it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.model.errors import InvalidInput

SECONDS = "simulation/seconds"
EXIT_CODE = "simulation/exit-code"
LOAD = "simulation/load"
_PREFIX = "simulation/"
_MAXIMA = {SECONDS: 31_536_000, EXIT_CODE: 255, LOAD: 100}


@dataclass(frozen=True, slots=True)
class Behaviour:
    seconds: int | None = None
    """Its run time; None: until it is stopped."""
    exit_code: int = 0
    load_percent: int = 0
    """The fraction of its requested CPU that it uses."""


def behaviour_of(labels: Mapping[str, str]) -> Behaviour:
    """Raise InvalidInput for a label of the simulation that does not exist or has no valid value."""
    values: dict[str, int] = {}
    for key, text in labels.items():
        if not key.startswith(_PREFIX):
            continue
        if key not in _MAXIMA:
            raise InvalidInput(
                f"there is no label {key!r}; known are {', '.join(sorted(_MAXIMA))}", code="invalid-label"
            )
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= _MAXIMA[key]):
            raise InvalidInput(
                f"label {key}={text[:20]}: write a whole number from 0 to {_MAXIMA[key]}", code="invalid-label"
            )
        values[key] = int(text)
    return Behaviour(values.get(SECONDS), values.get(EXIT_CODE, 0), values.get(LOAD, 0))
