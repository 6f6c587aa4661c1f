"""The source tree stays legible: narrow folders, short files, docstrings that name their subject."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
GENERATED = {"etcd_pb2.py"}
PLUGINS = {"filters", "scorers"}
"""Folders with one file per plugin may have any number of them."""
WRITTEN_BY_HAND = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".ts", ".tsx", ".css", ".html", ".conf", ".service"}


def test_no_folder_has_more_than_twenty_modules():
    modules = [*SOURCES, *(ROOT / "tests").rglob("*.py")]
    folders = {path.parent for path in modules if path.parent.name not in PLUGINS}
    counts = {
        str(folder.relative_to(ROOT)): len(set(folder.glob("*.py")) - {folder / "__init__.py"}) for folder in folders
    }
    assert {folder: count for folder, count in counts.items() if count > 20} == {}


def test_no_file_has_more_than_600_lines():
    files = [path for path in SOURCES if path.name not in GENERATED]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > 600} == {}


def test_every_package_says_what_it_is_for():
    packages = [path for path in SOURCES if path.name == "__init__.py" and "versions" not in path.parts]
    silent = [path for path in packages if ast.get_docstring(ast.parse(path.read_text())) is None]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_no_file_contains_conflict_markers_of_a_merge():
    folders = ["src/mooring", "tests", "benchmarks", "scripts", "docs", "deploy", "examples", "console/src"]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in WRITTEN_BY_HAND]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    conflicts = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in files if conflicts.search(path.read_text())] == []


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "scripts"])
def test_docstrings_do_not_open_with_a_question_word(folder: str):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in contents(path).docstrings
        if re.match(r"(What|Who|Whose|Whom|Which|How|When|Where|Why)\b", text)
    ]
    assert found == []


NOT_OUR_WORDS = frozenset(
    {"lookout", "waiting_room", "park", "shortage", "residents", "displacement", "together", "mixes", "growth"}
    | {"shrinking", "joining", "outlook", "survey", "narration", "endings", "successors", "charges", "derivation"}
    | {"expectations", "leftovers", "confidences", "unsealing", "guidance", "passing_on", "carrying", "showing"}
    | {"pressure", "boundary", "circumstances", "surroundings", "acting", "guests", "repetition", "questions", "course"}
    | {"keeper", "reaching", "remains", "office", "duties", "turn", "way_in", "room", "kept", "told", "meant"}
    | {"in_vain", "for_ever", "whoever"}
)
"""Names that only this project would use for a requeue index, a lease, a container state machine and so on."""
NOT_EVEN_IN_COMPOUNDS = frozenset(
    {"lookout", "parked", "parking", "shortage", "residents", "resident", "displacement", "narration", "endings"}
    | {"derivation", "derivations", "leftovers", "confidences", "unsealing", "carries", "wakes", "woken", "awake"}
    | {"circumstances", "surroundings", "whose", "whoever", "told", "tells", "vain", "keeper", "reaching", "aside"}
)
"""Words that occur in no part of a name of the package."""
PUBLIC_NAMES = {
    ("src/mooring/__init__.py", "resident"): "former name of RunningTask",
    ("src/mooring/__init__.py", "residents"): "former name of RunningTasks",
    ("src/mooring/store/nodes/pools.py", "turn"): "column of the table pools",
}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "scripts"])
def test_no_name_is_a_word_that_only_this_project_uses(folder: str):
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in contents(path).names
        if name in NOT_OUR_WORDS and (str(path.relative_to(ROOT)), name) not in PUBLIC_NAMES
    }
    assert found == set()


def test_no_part_of_a_name_is_a_word_that_only_this_project_uses():
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in SOURCES
        for name in contents(path).names
        if NOT_EVEN_IN_COMPOUNDS & set(name.split("_")) and (str(path.relative_to(ROOT)), name) not in PUBLIC_NAMES
    }
    assert found == set()


class Contents(NamedTuple):
    names: list[str]
    """The names of a module, its classes, functions, parameters, variables and attributes, in snake case."""
    docstrings: list[tuple[int, str]]
    """The line and text of each docstring, those of attributes included."""


@cache
def contents(path: Path) -> Contents:
    """Parse a module once for all tests of its names and docstrings."""
    found = Contents([path.stem], [])
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.names.append(snake(name))
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.names.append(snake(name))
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                found.docstrings.append((line, text.strip()))
    return found


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def test_test_names_state_a_rule_and_do_not_open_with_a_question_word():
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in contents(path).names
        if re.match(r"test_(what|who|whose|whom|which|how|when|where|why)_", name)
    ]
    assert found == []
