"""Human-readable statuses, ages, amounts and reasons. JSON output does not use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mooring.model.names import shown

if TYPE_CHECKING:
    from mooring.client.views import Start, Workload
    from mooring.wire.workloads.workloads import StartView, WorkloadView

NOTHING = "-"
_TIMES = {1: "once", 2: "twice"}
_CONTINUES = frozenset({"PENDING", "SCHEDULED", "PREPARING", "RUNNING"})
_FAILING = ("crash-looping", "image-pull-failing")
"""Healths of a workload that does not recover by itself."""
WAITS_FOR = {
    "room": "capacity",
    "quota": "a quota",
    "dependency": "other work",
    "time": "its time",
    "turn": "earlier work",
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
    """Return `running`, or `running (simulated)` on simulated nodes."""
    return f"{status.lower()} (simulated)" if simulated else status.lower()


def status_style(status: str) -> str:
    return _STYLES.get(status, "")


def workload_status(workload: Workload | WorkloadView) -> str:
    """Return the status of a workload as its health qualifies it: `degraded 2/3`, `crash-looping`, `running, 4 failed`.

    The status alone reads RUNNING as long as one task runs.
    """
    return status_text(_qualified(workload), simulated=workload.simulated)


def workload_style(workload: Workload | WorkloadView) -> str:
    if workload.health in _FAILING:
        return "red"
    if workload.health == "scaled-to-zero":
        return "dim"
    return "yellow" if workload.health == "degraded" else status_style(workload.status)


def _qualified(workload: Workload | WorkloadView) -> str:
    if workload.health in _FAILING:
        return str(workload.health)
    if workload.health == "scaled-to-zero":
        return "scaled to 0"
    # Of an array that continues without them.
    continues = workload.kind == "session" and workload.status in _CONTINUES
    cancelled = workload.counts.get("CANCELLED", 0) if continues else 0
    also = f", {cancelled:,} cancelled" if cancelled else ""
    if workload.health != "degraded":
        return f"{workload.status}{also}"
    failed = sum(workload.counts.get(status, 0) for status in ("FAILED", "LOST"))
    if failed:
        return f"{workload.status}, {failed:,} failed{also}"
    up = workload.ready if workload.kind == "deployment" else workload.running + workload.counts.get("SUCCEEDED", 0)
    return f"degraded {up}/{workload.replicas}"


def health_text(workload: Workload | WorkloadView) -> str:
    """Return why a workload is not healthy, how often it was restarted, and when it is started next."""
    if workload.health not in (*_FAILING, "degraded"):
        return ""
    parts = [
        workload.health_reason or "",
        f"{workload.restarts} restart{'' if workload.restarts == 1 else 's'}" if workload.restarts else "",
        retry_text(workload.next_retry_at),
    ]
    return ", ".join(filter(None, parts))


def last_exit_text(workload: WorkloadView) -> str:
    """Return the exit code and reason of the last end of the task that restarted most often."""
    if not workload.restarts or not workload.last_reason:
        return ""
    code = "" if workload.last_exit_code is None else f"exit code {workload.last_exit_code}"
    return "; ".join(filter(None, (code, workload.last_reason)))


def retry_text(at: datetime | None) -> str:
    """Return `next start in 12s` for a time in the future."""
    now = datetime.now(UTC)
    return "" if at is None or _aware(at) <= now else f"next start in {age(now, until=at)}"


def age(since: datetime | None, *, until: datetime | None = None) -> str:
    """Return the time between two instants in its largest unit: `3m`."""
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


def start_text(start: Start | StartView | None) -> str:
    """Return the expected start of a pending workload, `in 12m`, `about 2h`, `after 3h`, or its position, `#5`.

    A start that moved says so: `in 40m, was 12:34, moved twice`. Work that cannot start has none.
    """
    if start is None:
        return ""
    if start.unless is not None:
        return "needs a change"
    now = datetime.now(UTC)
    if start.not_before is not None:
        return f"after {age(now, until=start.not_before)}"
    if start.planned_at is not None:
        expected = f"in {age(now, until=start.planned_at)}" if _aware(start.planned_at) > now else "overdue"
    elif start.estimated_at is not None:
        expected = f"about {age(now, until=start.estimated_at)}"
    else:
        expected = "" if start.position is None else f"#{start.position:,}"
    slip = slip_text(start.first_at, start.moves, start.planned_at or start.estimated_at)
    return f"{expected}, {slip}" if slip else expected


def slip_text(first: datetime | None, moves: int, present: datetime | None) -> str:
    """Return `was 12:34, moved twice` for a start that was predicted earlier; empty if the first prediction stands."""
    if first is None or (present is not None and not moves and _aware(present) > datetime.now(UTC)):
        return ""
    local, today = _aware(first).astimezone(), datetime.now().astimezone()
    text = f"was {local.strftime('%H:%M' if local.date() == today.date() else '%Y-%m-%d %H:%M')}"
    if not moves:
        return text
    return f"{text}, moved {_TIMES.get(moves, f'{moves:,} times')}"


def instant(at: datetime | None) -> str:
    """Return an instant in the local time zone, to the second."""
    return NOTHING if at is None else _aware(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def amounts(resources: Mapping[str, str]) -> str:
    """Return `2 cpu, 2Gi memory`."""
    return ", ".join(f"{rounded(slot, amount)} {slot}" for slot, amount in resources.items()) or NOTHING


def rounded(slot: str, amount: str) -> str:
    """Return a number of bytes with three digits, `23.5Gi`, and other amounts unchanged."""
    from mooring.model.resources.quantity import parse_quantity
    from mooring.model.resources.slots import slot_type

    if slot_type(slot).kind != "bytes":
        return amount
    value = float(parse_quantity(amount))
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if abs(value) < 1024 or unit == "Pi":
            break
        value /= 1024
    return f"{value:.3g}{unit}" if abs(value) < 1000 else f"{value:.0f}{unit}"


def digests(by_container: Mapping[str, str]) -> str:
    """Return `main 5cdb8fea8fe7, log 9f86d081884c`, with shortened digests."""
    return ", ".join(f"{name} {digest.rpartition(':')[2][:12]}" for name, digest in sorted(by_container.items()))


def devices(by_slot: Mapping[str, Iterable[tuple[int, int]]]) -> str:
    """Return `gpu 0, gpu 2 (0.5)`, with the allocated fraction of a shared device."""
    from mooring.model.resources.slots import UNITS_PER_ONE, slot_type

    parts = []
    for slot, shares in by_slot.items():
        kind = slot_type(slot)
        for index, amount in shares:
            whole = amount == UNITS_PER_ONE[kind.kind]
            parts.append(f"{slot} {index}" if whole else f"{slot} {index} ({kind.format(amount)})")
    return ", ".join(parts)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return `50 running, 120 succeeded`."""
    return ", ".join(f"{number:,} {status.lower()}" for status, number in sorted(counts.items())) or NOTHING


def running_text(running: int, replicas: int) -> str:
    """Return `3 of 5 running`, or `5 of 5 running and 1 extra` while replicas are replaced."""
    extra = max(running - replicas, 0)
    return f"{running - extra} of {replicas} running" + (f" and {extra} extra" if extra else "")


def progress_text(counts: Mapping[str, int], running: int, replicas: int, ready: int | None = None) -> str:
    """Return `3/5` with the number of ready tasks, if not all are ready, and the number of ended tasks.

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
    """Return the message of a stored reason with its code."""
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


def no_plan(reason: Mapping[str, Any] | None) -> str:
    """Return why a pending workload has no planned start, if its reason contains that."""
    plan = ((reason or {}).get("details") or {}).get("plan") or {}
    return str(plan.get("message", ""))
