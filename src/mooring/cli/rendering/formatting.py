"""How values read to people: statuses, ages, amounts, reasons. JSON output never passes through here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mooring.model.names import shown

if TYPE_CHECKING:
    from mooring.wire.api import StartView

NOTHING = "-"
WAITS_FOR = {
    "room": "room",
    "quota": "a quota",
    "dependency": "other work",
    "time": "its time",
    "turn": "those before it",
    "change": "a change",
}
_STYLES = {
    "RUNNING": "green",
    "READY": "green",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "LOST": "red",
    "EXPIRED": "red",
    "REFUSED": "red",
    "SATISFIED": "green",
    "REQUESTED": "yellow",
    "DELIVERED": "yellow",
    "PENDING": "yellow",
    "DRAINING": "yellow",
    "SUSPECT": "yellow",
    "TERMINATING": "yellow",
    "CANCELLED": "dim",
}


def status_text(status: str, *, simulated: bool) -> str:
    """`running`, or `running (simulated)` where nothing really runs."""
    return f"{status.lower()} (simulated)" if simulated else status.lower()


def status_style(status: str) -> str:
    return _STYLES.get(status, "")


def age(since: datetime | None, *, until: datetime | None = None) -> str:
    """The time between two instants in its largest unit: `3m`."""
    if since is None:
        return NOTHING
    end = until or datetime.now(UTC)
    return duration((_aware(end) - _aware(since)).total_seconds())


def duration(seconds: float) -> str:
    whole = max(int(seconds), 0)
    for size, unit, below in ((1, "s", 120), (60, "m", 120), (3600, "h", 48), (86400, "d", 10_000)):
        if whole // size < below:
            return f"{whole // size}{unit}"
    return f"{whole // 86400}d"


def start_text(start: StartView | None) -> str:
    """When a workload starts that waits: `in 12m`, `after 3h`, or its place in the line, `#5`."""
    if start is None:
        return ""
    now = datetime.now(UTC)
    if start.not_before is not None:
        return f"after {age(now, until=start.not_before)}"
    if start.planned_at is not None:
        return f"in {age(now, until=start.planned_at)}"
    return f"#{start.position:,}"


def instant(at: datetime | None) -> str:
    """An instant in the reader's own time zone, to the second."""
    return NOTHING if at is None else _aware(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def amounts(resources: Mapping[str, str]) -> str:
    """`2 cpu, 2Gi memory`."""
    return ", ".join(f"{rounded(slot, amount)} {slot}" for slot, amount in resources.items()) or NOTHING


def rounded(slot: str, amount: str) -> str:
    """An amount of bytes with three digits, `23.5Gi`; others as they are."""
    from mooring.model.quantity import parse_quantity
    from mooring.model.slots import slot_type

    if slot_type(slot).kind != "bytes":
        return amount
    value = float(parse_quantity(amount))
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if abs(value) < 1024 or unit == "Pi":
            break
        value /= 1024
    return f"{value:.3g}{unit}" if abs(value) < 1000 else f"{value:.0f}{unit}"


def digests(by_container: Mapping[str, str]) -> str:
    """`main 5cdb8fea8fe7, log 9f86d081884c`: as much of each as tells images apart."""
    return ", ".join(f"{name} {digest.rpartition(':')[2][:12]}" for name, digest in sorted(by_container.items()))


def devices(by_slot: Mapping[str, Iterable[tuple[int, int]]]) -> str:
    """`gpu 0, gpu 2 (0.5)`: a share of a device with how much of it."""
    from mooring.model.slots import UNITS_PER_ONE, slot_type

    words = []
    for slot, shares in by_slot.items():
        kind = slot_type(slot)
        for index, amount in shares:
            whole = amount == UNITS_PER_ONE[kind.kind]
            words.append(f"{slot} {index}" if whole else f"{slot} {index} ({kind.format(amount)})")
    return ", ".join(words)


def counts_text(counts: Mapping[str, int]) -> str:
    """`50 running, 120 succeeded`."""
    return ", ".join(f"{number:,} {status.lower()}" for status, number in sorted(counts.items())) or NOTHING


def running_text(running: int, replicas: int) -> str:
    """`3 of 5 running`, or `5 of 5 running and 1 extra` while replicas are replaced."""
    extra = max(running - replicas, 0)
    return f"{running - extra} of {replicas} running" + (f" and {extra} extra" if extra else "")


def progress_text(counts: Mapping[str, int], running: int, replicas: int, ready: int | None = None) -> str:
    """`3/5`, how many of them are ready where not all are, and how many of several tasks have ended.

    `5/5, 3 ready`; `5/5+1` while replicas are replaced; `50/10000 (120 succeeded)`.
    """
    extra = max(running - replicas, 0)
    progress = f"{running - extra}/{replicas}" + (f"+{extra}" if extra else "")
    if ready is not None and ready != running:
        return f"{progress}, {ready} ready"
    over = {status: number for status, number in counts.items() if status in ("SUCCEEDED", "FAILED", "CANCELLED")}
    return progress + (f" ({counts_text(over)})" if over and replicas > 1 else "")


def pairs(values: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items()) or NOTHING


def reason_text(reason: Mapping[str, Any] | None) -> str:
    """The message of a stored reason with its code."""
    if not reason:
        return ""
    code, message = reason.get("code"), reason.get("message")
    return ": ".join(str(part) for part in (code, message) if part)


def command_text(command: Iterable[str]) -> str:
    import shlex

    return shown(shlex.join(command)) or NOTHING


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)
