"""Data that is not part of the project: published conformance cases and traces.

MOORING_CONFORMANCE and MOORING_TRACES name their folders. A test that needs a missing file is skipped.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def conformance() -> Callable[[str], Any]:
    """`conformance("quantity.json")` is the parsed content of that file."""
    return lambda name: json.loads(external_file("MOORING_CONFORMANCE", "conformance", name).read_bytes())


@pytest.fixture(scope="session")
def trace() -> Callable[[str], Path]:
    """`trace("name.csv")` is the path of that file."""
    return lambda name: external_file("MOORING_TRACES", "traces", name)


def external_folder(variable: str, folder: str) -> Path:
    return Path(os.environ.get(variable) or PROJECT.parent / "shared" / folder)


def external_file(variable: str, folder: str, name: str) -> Path:
    path = external_folder(variable, folder) / name
    if not path.exists():
        pytest.skip(f"no {name} in {path.parent}; set {variable} to the folder that holds it")
    return path
