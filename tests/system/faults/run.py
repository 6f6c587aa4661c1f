"""One run: a cluster with the load and the faults of a seed, then the checks of its records."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import asyncpg

from mooring.client import Client
from mooring.wire.tenancy.quotas import QuotaChange
from mooring.wire.tenancy.users import UserRequest
from tests.system.faults.checker import Violation, check, check_empty
from tests.system.faults.cluster import LEASE_SECONDS, Cluster, running_cluster
from tests.system.faults.load import BOUNDED, BOUNDED_SESSIONS, OWNERS, Load, make_bookings, make_load, steps_of
from tests.system.faults.plan import LEADER, Fault, FaultKind, make_plan
from tests.system.faults.records import read_records
from tests.system.faults.watch import Watch, watching
from tests.system.servers import PASSWORD

_TICK_SECONDS = 0.05
_POLL_SECONDS = 0.5
_STALLED_POLLS = 360
"""Polls without progress after which the run counts as stuck. Each queries the database, so on a busy machine polls
slow down with the cluster; seconds do not."""
_MAX_WAIT_SECONDS = 3600.0
_IDLE_POLLS = 3
"""Consecutive polls that must find no unfinished work."""
_UNFINISHED = """
    SELECT 'workload ' || w.name || ' is ' || w.status FROM workloads w
    WHERE w.ended_at IS NULL AND NOT (w.kind = 'deployment' AND w.status = 'RUNNING')
    UNION ALL
    SELECT 'task ' || t.id || ' of ' || w.name || ' is ' || t.status
    FROM tasks t JOIN workloads w ON w.id = t.workload_id
    WHERE (t.ended_at IS NULL AND t.status <> 'RUNNING')
        OR (t.ended_at IS NOT NULL AND t.freed_at IS NULL AND t.node_id IS NOT NULL)
        OR (w.kind = 'deployment' AND w.ended_at IS NULL AND t.current AND t.status <> 'RUNNING')
    UNION ALL
    SELECT 'node ' || name || ' is ' || status FROM nodes WHERE status <> 'READY'
    UNION ALL
    SELECT 'timeslot ' || name || ' is ' || status FROM timeslots
    WHERE status IN ('REQUESTED', 'AT_RISK')
        OR (status IN ('CONFIRMED', 'ACTIVE') AND ends_at <= now() + interval '5 minutes')
"""
"""Unfinished work. Timeslots that end more than five minutes from now are not waited for."""

Say = Callable[[str], None]


@dataclass
class Report:
    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    tasks: int = 0
    booked: Counter[str] = field(default_factory=Counter)
    """Timeslots by final status."""
    terms: int = 0
    takeovers: list[float] = field(default_factory=list)
    """Seconds from a fault of the leader until the next term began."""
    troubles: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    logs: Path | None = None
    """The folder of all parts' logs, if they were retained."""

    def lines(self) -> Iterator[str]:
        yield f"seed                 {self.seed}"
        yield f"seconds              {self.seconds:g}"
        for kind, count in sorted(self.faults.items()):
            yield f"{kind:<20} {count}"
        yield f"faults               {self.faults.total()}"
        yield f"workloads accepted   {self.accepted}"
        yield f"tasks                {self.tasks}"
        for status, count in sorted(self.booked.items()):
            yield f"timeslots            {count} {status}"
        yield f"terms                {self.terms}"
        if self.takeovers:
            yield f"take-overs           {len(self.takeovers)}"
            yield f"take-over p50, max   {median(self.takeovers):.1f} s, {max(self.takeovers):.1f} s"
        for code, count in sorted(self.troubles.items()):
            yield f"asked again          {count} after {code}"
        for refusal in self.refused:
            yield f"refused              {refusal}"
        for name, line in self.ended:
            yield f"ended by itself      {name}: {line}"
        for violation in self.violations:
            yield f"VIOLATION            {violation}"
        yield f"violations           {len(self.violations)}"
        if self.logs is not None:
            yield f"logs                 {self.logs}"


def run(seed: int, seconds: float, say: Say, logs: Path | None = None) -> Report:
    """Report each event to `say`. Keep the logs of all parts in `logs`; without it only after a violation."""
    report = Report(seed, seconds)
    plan = make_plan(seed, seconds, LEASE_SECONDS)
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        say(line)

    tell("starting the cluster")
    with running_cluster() as cluster, ExitStack() as keeping:
        # Also if the harness itself fails.
        keeping.push(lambda error, *_: _keep_logs(cluster, report, said, logs, failed=error is not None))
        _run(cluster, plan, report, tell)
    return report


def _keep_logs(cluster: Cluster, report: Report, said: Sequence[str], logs: Path | None, *, failed: bool) -> None:
    if logs is None and not report.violations and not failed:
        return
    folder = logs or Path(tempfile.mkdtemp(prefix=f"mooring-faults-{report.seed}-"))
    keep_logs(cluster, [*said, *report.lines()], folder)
    report.logs = folder
    if failed:
        sys.stderr.write(f"the logs of all parts are in {folder}\n")


def keep_logs(cluster: Cluster, said: Sequence[str], folder: Path) -> None:
    """Copy the log of every part and the run's own output to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.txt").write_text("\n".join(said) + "\n")
    for name, part in cluster.parts.items():
        (folder / f"{name}.txt").write_text(part.log)


def _run(cluster: Cluster, plan: Sequence[Fault], report: Report, say: Say) -> None:
    seed, seconds = report.seed, report.seconds
    with watching(cluster.database_url) as watch, ExitStack() as stack:
        clients = {owner: stack.enter_context(client) for owner, client in _clients(cluster).items()}
        admin = clients["admin"]
        cores = float(admin.nodes().nodes[0].slots["cpu"].allocatable)
        lanes = [*zip((clients[owner] for owner in OWNERS), make_load(seed, seconds), strict=True)]
        lanes += [(admin, steps) for steps in (*steps_of(plan), make_bookings(seed, seconds))]
        load = Load(lanes, starts=str(cluster.starts), cores=cores, seed=seed)
        say(f"{len(plan)} faults within {seconds:g} seconds")
        load.start()
        faults = Faults(cluster, watch, say)
        faults.inject(plan, seconds)
        say("everything is put right again")
        cluster.heal()
        _wait_until_idle(cluster, load.waiting, lambda: load.answers)
        load.give_up()
        left = _wait_until_idle(cluster, lambda: _unfinished(cluster), lambda: _changes(cluster))
        say("checking")
        records = read_records(cluster)
        report.violations += [Violation("answered", what) for what in load.unanswered]
        report.violations += [Violation("ended", f"{name} was asked to end and stays") for name in cluster.staying()]
        report.violations += [Violation("rest", what) for what in left]
        report.violations += check(records, load.accepted, load.booked) + _audit(admin)
        for promise in load.accepted.values():
            if promise.work.seconds is None and not promise.stop_requested:
                admin.cancel(str(promise.id))
        _wait_until_idle(cluster, lambda: _unfinished(cluster) + _without_end(cluster), lambda: _changes(cluster))
        report.violations += check_empty(read_records(cluster)) + _audit(admin)
        report.faults = Counter(fault.kind.value for fault in plan)
        report.accepted, report.tasks, report.terms = len(load.accepted), len(records.tasks), len(watch.terms)
        report.booked = Counter(slot["status"] for slot in records.timeslots)
        report.takeovers = list(faults.takeovers())
        report.troubles, report.refused, report.ended = load.troubles, load.refused, cluster.ended


@dataclass
class LeaderFault:
    """A fault of the leader: its name and the time."""

    victim: str
    at: datetime


class Faults:
    """Injects the faults of a plan."""

    def __init__(self, cluster: Cluster, watch: Watch, say: Say) -> None:
        self._cluster = cluster
        self._watch = watch
        self._say = say
        self._leader_faults: list[LeaderFault] = []

    def inject(self, plan: Sequence[Fault], seconds: float) -> None:
        """Inject and repair each fault at its time."""
        began = time.monotonic()
        coming = deque(fault for fault in plan if fault.kind not in (FaultKind.FILL, FaultKind.DRAIN))
        lasting: list[tuple[float, Callable[[], None]]] = []
        while (now := time.monotonic() - began) < seconds:
            while coming and coming[0].at <= now:
                fault = coming.popleft()
                target = self._find(fault)
                self._say(f"{now:6.1f} {fault.kind} {target} for {fault.seconds:.1f} s")
                lasting.append((now + fault.seconds, self._begin(fault.kind, target)))
            over = [end for until, end in lasting if until <= now]
            lasting = [each for each in lasting if each[0] > now]
            for end in over:
                end()
            self._cluster.keep()
            time.sleep(_TICK_SECONDS)

    def takeovers(self) -> Iterator[float]:
        """Yield the seconds until the next term for each fault that ended a leadership."""
        for number, struck in enumerate(self._leader_faults):
            following = self._leader_faults[number + 1].at if number + 1 < len(self._leader_faults) else None
            term = next((term for term in self._watch.terms if term.taken_at > struck.at), None)
            if term is not None and term.holder != struck.victim and (following is None or term.taken_at < following):
                yield (term.taken_at - struck.at).total_seconds()

    def _find(self, fault: Fault) -> str:
        """Return the fault's target, with the current leader's name in place of `leader`."""
        leader = self._watch.leader or "scheduler-1"
        who, sign, what = fault.target.partition(">")
        found = leader if who == LEADER else who
        if found == leader:
            self._leader_faults.append(LeaderFault(leader, datetime.now(UTC)))
        return f"{found}{sign}{what}"

    def _begin(self, kind: FaultKind, target: str) -> Callable[[], None]:
        """Begin a fault and return the function that repairs it."""
        cluster = self._cluster
        match kind:
            case FaultKind.KILL:
                cluster.kill(target)
                return lambda: cluster.start(target)
            case FaultKind.PAUSE:
                cluster.pause(target)
                return lambda: cluster.resume(target)
            case FaultKind.RESTART:
                cluster.restart(target)
                return lambda: None
            case FaultKind.CUT:
                cluster.links[target].cut()
                return cluster.links[target].heal
            case FaultKind.HOLD:
                cluster.links[target].hold()
                return cluster.links[target].heal
            case FaultKind.WIPE | FaultKind.RESTORE:
                cluster.lose_data(restored=kind is FaultKind.RESTORE)
                return cluster.start_etcd
            case _:
                raise AssertionError(f"{kind} is a request, which the load makes")


def _clients(cluster: Cluster) -> dict[str, Client]:
    """Return a client for each user."""
    admin = cluster.client()
    admin.create_user(UserRequest(username=BOUNDED, password=PASSWORD))
    admin.change_quota("user", BOUNDED, QuotaChange(limits={"sessions": BOUNDED_SESSIONS}))
    return {"admin": admin, BOUNDED: cluster.client(BOUNDED)}


def _wait_until_idle(cluster: Cluster, left: Callable[[], list[str]], progress: Callable[[], object]) -> list[str]:
    """Wait until no work is left. Return the remaining work once neither it nor `progress` changes any more."""
    began = time.monotonic()
    quiet = stalled = 0
    found: list[str] = []
    before: object = None
    while quiet < _IDLE_POLLS and stalled < _STALLED_POLLS and time.monotonic() < began + _MAX_WAIT_SECONDS:
        cluster.keep()
        found = left()
        quiet = 0 if found else quiet + 1
        now = (found, progress())
        stalled = stalled + 1 if now == before else 0
        before = now
        time.sleep(_POLL_SECONDS)
    return found


def _changes(cluster: Cluster) -> list[str]:
    """Return the last status change. Events do not count: the reason for waiting may alternate without progress."""
    return _query(cluster, "SELECT coalesce(max(id), 0)::text FROM status_history")


def _unfinished(cluster: Cluster) -> list[str]:
    return _query(cluster, _UNFINISHED)


def _without_end(cluster: Cluster) -> list[str]:
    return _query(cluster, "SELECT 'workload ' || name FROM workloads WHERE ended_at IS NULL")


def _query(cluster: Cluster, question: str) -> list[str]:
    async def ask() -> list[str]:
        connection = await asyncpg.connect(cluster.database_url.replace("+asyncpg", ""))
        try:
            return [row[0] for row in await connection.fetch(question)]
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        try:
            return runner.run(ask())
        except (OSError, asyncpg.PostgresError) as error:
            return [f"the database does not answer: {error}"]


def _audit(client: Client) -> list[Violation]:
    """I2, I5, I12, I15: ledger, counters of nodes and tenants and readable copies agree, and timeslots fit."""
    return [
        Violation("audit", f"{each.subject}: {each.expected}, not {each.found}") for each in client.audit().findings
    ]
