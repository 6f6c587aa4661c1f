"""The command line starts fast: the modules that hot commands import, and the table of commands."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import typing
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from typer.main import get_command

from mooring.cli.app import app
from mooring.cli.command_table import ENTRIES
from mooring.cli.help import panel_of
from mooring.client import views
from mooring.wire.cluster import nodes
from mooring.wire.workloads import workloads
from tests.cli.conftest import Mooring
from tests.client.fake_server import FakeServer

HEAVY = {"pydantic", "pydantic_core", "numpy", "numba", "sqlalchemy", "fastapi", "starlette", "aiohttp", "asyncio"}
HEAVY |= {"rich", "httpx2", "yaml", "structlog", "cryptography", "mooring.settings", "mooring.wire.workloads"}
PROGRAM = """
import sys
from mooring.cli import main
try:
    main()
finally:
    print("\\n".join(sys.modules), file=sys.stderr)
"""


def imported(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Return the output of the command and the modules that it imported."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return ended.stdout, set(ended.stderr.split())


def test_help_imports_no_heavy_module() -> None:
    shown, modules = imported("--help")
    assert "List your workloads" in shown
    assert not modules & HEAVY
    assert not any(module.startswith("mooring.cli.commands.") for module in modules)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_commands_imports_no_heavy_module(shell: str) -> None:
    words = {"COMP_WORDS": "mooring dep", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "mooring dep"}
    shown, modules = imported(_MOORING_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **words)
    assert "deploy" in shown
    assert not modules & HEAVY


@pytest.mark.parametrize("command", [("ps",), ("ps", "-o", "json"), ("session", "list"), ("nodes",)])
def test_hot_listings_import_no_heavy_module(server: FakeServer, mooring: Mooring, command: tuple[str, ...]) -> None:
    server.add("web", status="RUNNING")
    shown, modules = imported(*command)
    assert "web" in shown or command == ("nodes",)
    assert not modules & HEAVY


def test_completion_of_names_imports_no_heavy_module(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", status="RUNNING")
    words = {"COMP_WORDS": "mooring status w", "COMP_CWORD": "2"}
    shown, modules = imported(_MOORING_COMPLETE="complete_bash", **words)
    assert shown.split() == ["web"]
    assert not modules & HEAVY


def test_command_table_describes_the_real_commands() -> None:
    root: Any = get_command(app)
    real = {
        name: (None if command.hidden else panel_of(command), command.get_short_help_str(limit=10_000))
        for name, command in root.commands.items()
    }
    assert {name: (entry.panel, entry.description) for name, entry in ENTRIES.items()} == real


def test_every_command_module_is_in_the_command_table() -> None:
    from typer.main import get_group

    from mooring.cli import commands
    from mooring.cli.command_table import commands_of

    defined: set[str] = set()
    for package in (path for path in os.scandir(commands.__path__[0]) if path.is_dir() and path.name[0] != "_"):
        for file in os.scandir(package.path):
            module = f"{package.name}.{file.name.removesuffix('.py')}"
            loaded = file.name.endswith(".py") and __import__(f"{commands.__name__}.{module}", fromlist=["app"])
            if loaded and hasattr(loaded, "app") and get_group(loaded.app).commands:
                defined |= commands_of(module).keys()
    assert defined == set(ENTRIES)


@pytest.mark.parametrize(
    ("struct", "schema"),
    [
        (views.Start, workloads.StartView),
        (views.Workload, workloads.WorkloadView),
        (views.Workloads, workloads.WorkloadList),
        (views.Slot, nodes.SlotView),
        (views.Taint, nodes.TaintView),
        (views.Node, nodes.NodeView),
        (views.Nodes, nodes.NodeList),
    ],
)
def test_structs_of_hot_listings_agree_with_the_wire(struct: type[Any], schema: type[BaseModel]) -> None:
    hints = get_type_hints(struct)
    for name in struct.__struct_fields__:
        field = schema.model_fields[name]
        assert _form(hints[name]) == _form(field.annotation), name
        if name in struct.__struct_fields__[len(struct.__struct_fields__) - len(struct.__struct_defaults__) :]:
            continue
        assert field.is_required(), f"{name} may be missing from an answer"


def _form(annotation: Any) -> str:
    """Return a type without the names of schemas and structs; ids are text in JSON."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return " | ".join(sorted(_form(part) for part in get_args(annotation)))
    if get_origin(annotation) is not None:
        return f"{get_origin(annotation).__name__}[{', '.join(_form(part) for part in get_args(annotation))}]"
    names = {"UUID": "str", "StartView": "Start", "WorkloadView": "Workload", "NodeView": "Node"}
    names |= {"SlotView": "Slot", "TaintView": "Taint"}
    name = getattr(annotation, "__name__", str(annotation))
    return names.get(name, name)
