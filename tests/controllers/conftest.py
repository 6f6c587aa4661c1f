"""Capture the log in every test of the loops, because rendering tracebacks of expected errors is slow."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries
