"""Option names of `mooring pool create` and `mooring pool change`, and the syntax of those that are not plain values.

Types, bounds and help come from the fields of `PoolRequest` and `PoolChange`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mooring.cli.input.model_options import ModelOption, read_texts
from mooring.model.errors import InvalidInput

PluginOptions = dict[str, str | int | bool]


def request_fields(given: dict[str, Any], *, own_weights: bool = False) -> dict[str, Any]:
    """Return the fields of a request from the given options, which are checked for combinations without a meaning."""
    fields = dict(given)
    if own_weights:
        fields.setdefault("weights", {})
    if "selector" in fields:
        fields["selector"], fields["selector_options"] = _plugin(fields["selector"], "--selector")
    if "preemption" in fields:
        fields["preemption"] = _preemption(fields["preemption"])
    if "health" in fields and "command" not in fields["health"]:
        raise InvalidInput("--health-interval and --health-timeout need --health")
    return fields


def _preemption(given: dict[str, Any]) -> dict[str, Any]:
    if "mode" not in given:
        raise InvalidInput("--scope and --min-runtime need --preemption terminate or --preemption requeue")
    return {"enabled": False} if given["mode"] == "off" else given


def _plugins(texts: Iterable[str], flag: str) -> dict[str, PluginOptions]:
    return dict(_plugin(text, flag) for text in texts if text)


def _plugin(text: str, flag: str) -> tuple[str, PluginOptions]:
    name, _, given = text.partition(":")
    options = read_texts([each for each in given.split(",") if each], flag)
    return name, {key: _plugin_option(value) for key, value in options.items()}


def _plugin_option(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _validators(texts: Iterable[str], flag: str) -> dict[str, list[str]]:
    given = read_texts(texts, flag)
    return {name: [moment for moment in moments.split(",") if moment] for name, moments in given.items()}


def _memory(text: str, _: str) -> str:
    from mooring.cli.input.requests import memory_bytes

    return memory_bytes(text)


def _folders(texts: Iterable[str], _: str) -> list[str]:
    return [text for text in texts if text]


def _command(text: str, flag: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"{flag} {text[:60]!r}: {error}") from None


_PANELS = {
    "Placement": (
        ModelOption("profile"),
        ModelOption("weights", "--weight", "SCORER=N"),
        ModelOption("scorer_options", "--scorer-option", "SCORER:OPTION=VALUE,…", read=_plugins),
        ModelOption("filters", "--filter", "NAME[:OPTION=VALUE,…]", read=_plugins),
        ModelOption("selector", metavar="NAME[:OPTION=VALUE,…]"),
        ModelOption("max_tasks_per_node"),
        ModelOption("fragmentation"),
        ModelOption("binding"),
        ModelOption("hold_seconds", "--hold-seconds"),
        ModelOption("hold_max_seconds", "--hold-max-seconds"),
    ),
    "Queue": (
        ModelOption("sequencer"),
        ModelOption("factors", "--factor"),
        ModelOption("fair_share.half_life_days"),
        ModelOption("fair_share.lookback_days"),
        ModelOption("fair_share.slot_weights", "--slot-weight", "SLOT=N"),
        ModelOption("ageing_seconds"),
        ModelOption("head_of_line"),
        ModelOption("backfill.depth", "--backfill-depth"),
        ModelOption("backfill.order", "--backfill-order"),
        ModelOption("backfill.max_bypass_seconds"),
        ModelOption("backfill.expectation"),
        ModelOption("on_insufficient"),
        ModelOption("pending_timeout_seconds"),
        ModelOption("deprioritise"),
        ModelOption("validators", "--validator", "NAME=MOMENT,…", read=_validators),
    ),
    "Preemption": (
        ModelOption("preemption.mode", "--preemption", choices=("off",)),
        ModelOption("preemption.scope"),
        ModelOption("preemption.min_runtime_seconds"),
    ),
    "Bookings": (
        ModelOption("bookings.lead_seconds", "--booking-lead"),
        ModelOption("bookings.grace_seconds", "--booking-grace"),
        ModelOption("bookings.notice_seconds", "--booking-notice"),
        ModelOption("bookings.open_ended"),
        ModelOption("bookings.open_ended_notice_seconds"),
    ),
    "Access and limits": (
        ModelOption("public"),
        ModelOption("allowed_types", "--type"),
        ModelOption("default_cpu", metavar="AMOUNT"),
        ModelOption("default_memory", metavar="BYTES", read=_memory),
        ModelOption("default_time_seconds"),
        ModelOption("max_time_seconds"),
        ModelOption("idle_timeout_seconds"),
        ModelOption("privileged"),
        ModelOption("host_paths", "--host-path", "FOLDER", read=_folders),
        ModelOption("shared_volumes", metavar="FOLDER"),
        ModelOption("isolation"),
    ),
    "Health": (
        ModelOption("health.command", "--health", "COMMAND", read=_command, as_one_text=True),
        ModelOption("health.interval_seconds", "--health-interval"),
        ModelOption("health.timeout_seconds", "--health-timeout"),
    ),
    "Scaling": (
        ModelOption("scaling.goal", "--scale-goal"),
        ModelOption("scaling.least", "--least-nodes"),
        ModelOption("scaling.most", "--most-nodes"),
        ModelOption("scaling.cooldown_seconds", "--scale-cooldown"),
        ModelOption("scaling.idle_seconds", "--idle-time"),
        ModelOption("scaling.shrink_cooldown_seconds"),
        ModelOption("scaling.shrink"),
    ),
    "Defragmentation": (
        ModelOption("defragmentation.moves_per_hour", "--defrag-moves"),
        ModelOption("defragmentation.gain", "--defrag-gain"),
        ModelOption("defragmentation.max_lost_seconds", "--defrag-max-lost"),
        ModelOption("defragmentation.interactive", "--defrag-interactive"),
    ),
}

CHANGE_OPTIONS = tuple(replace(option, panel=panel) for panel, options in _PANELS.items() for option in options)
CREATE_OPTIONS = (ModelOption("runtimes", "--runtime"), ModelOption("simulated"), *CHANGE_OPTIONS)
