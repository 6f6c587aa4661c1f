from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from pydantic import BaseModel

from mooring.cli.app import app
from mooring.cli.commands.cluster.pool_options import CHANGE_OPTIONS, CREATE_OPTIONS
from mooring.cli.commands.tenancy.policies import _OPTIONS as POLICY_OPTIONS
from mooring.cli.input.model_options import ModelOption
from mooring.model.policy.pools import AUTOMATIC, HealthProgram, PoolPolicy
from mooring.model.policy.preemption import Preemption
from mooring.model.tenancy.policies import RULES
from mooring.wire.cluster.pools import PoolChange, PoolRequest
from mooring.wire.tenancy.tenants import PolicyRules


@pytest.mark.parametrize(
    ("model", "options", "without"),
    [
        # `--selector` sets the options as well, `--preemption off` the switch.
        (PoolChange, CHANGE_OPTIONS, {"selector_options", "preemption.enabled", "preemption.hold_seconds"}),
        (
            PoolRequest,
            CREATE_OPTIONS,
            {"name", "selector_options", "preemption.enabled", "preemption.hold_seconds"},
        ),
        (PolicyRules, POLICY_OPTIONS, set()),
    ],
)
def test_every_described_field_has_one_option(
    model: type[BaseModel], options: tuple[ModelOption, ...], without: set[str]
) -> None:
    paths = [option.path for option in options]
    assert sorted(paths) == sorted(set(leaves(model)) - without)


def test_policy_rules_of_the_wire_are_those_of_the_model() -> None:
    assert tuple(PolicyRules.model_fields) == RULES


@pytest.mark.parametrize(("group", "command"), [("pool", "change"), ("pool", "create"), ("policy", "create")])
def test_every_generated_option_has_help(group: str, command: str) -> None:
    root = typer.main.get_command(app)
    parameters = root.commands[group].commands[command].params  # type: ignore[attr-defined]
    assert [each.name for each in parameters if not each.help] == []


def test_models_are_loaded_only_by_the_commands_that_need_them() -> None:
    program = "import sys, mooring.cli.app; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def leaves(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the paths of the fields of a model and of the models inside it."""
    paths = []
    for name, field in model.model_fields.items():
        inner = [each for each in getattr(field.annotation, "__args__", ()) if isinstance(each, type)]
        nested = [each for each in inner if issubclass(each, BaseModel)]
        paths += leaves(nested[0], f"{prefix}{name}.") if nested else [f"{prefix}{name}"]
    return paths


def test_the_default_of_a_duration_has_a_unit() -> None:
    reference = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
    durations = [line for line in reference.read_text().splitlines() if re.match(r"\| `-[^`]* TIME` \|", line)]
    assert len(durations) > 30
    assert [line for line in durations if re.search(r"default:? (?!0\b)[\d.]+[\])]", line)] == []


def test_the_described_defaults_of_a_pool_are_those_of_the_program() -> None:
    policy = msgspec.to_builtins(PoolPolicy(AUTOMATIC, health=HealthProgram(("true",)), preemption=Preemption()))
    elsewhere = {"preemption.mode", "fair_share.slot_weights", "allowed_types", "default_memory", "default_cpu"}
    words = {"None": "0", "False": "no", "True": "yes"}
    described, actual = {}, {}
    for path in set(leaves(PoolChange)) - elsewhere:
        model: type[BaseModel] = PoolChange
        *outer, last = path.split(".")
        value = policy
        for name in outer:
            annotation: Any = model.model_fields[name].annotation
            model = next(each for each in annotation.__args__ if isinstance(each, type) and issubclass(each, BaseModel))
            value = value[name]
        found = re.search(r"([\w-]+) \(default\)|\(default ([\w-]+)\)", model.model_fields[last].description or "")
        if found is not None:
            described[path] = found[1] or found[2]
            actual[path] = words.get(str(value[last]), str(value[last]))
    assert len(described) > 30
    assert described == actual
