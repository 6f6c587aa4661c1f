"""The waiting room: what cannot be placed now is parked under what it lacks, until something changes that may cure it.

Work that is alike to placement waits together and is tried once per change, however much of it there is. What it lacks
is room or a constraint met on some node (see `lookout`), a time, a gate that somebody else lifts, less use or other
limits of its tenants, or that one before it finds room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from uuid import UUID

from mooring.model.admission import NOTHING, Awaits
from mooring.model.decisions import Decision, Outcome
from mooring.model.quotas import Tenant
from mooring.model.reasons import Reason
from mooring.model.workloads import Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.line import Best, Line
from mooring.scheduling.lookout import Entry, Lookout
from mooring.scheduling.ordering.bands import ordered
from mooring.scheduling.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins import Situation
from mooring.scheduling.profiles import Profile
from mooring.scheduling.rounds import BLOCKED
from mooring.scheduling.scaling import lacks_nodes
from mooring.scheduling.scheduler import Pass
from mooring.scheduling.shapes import Shape, shape_of
from mooring.scheduling.shortage import Shortage


@dataclass(frozen=True, slots=True)
class Alike:
    """What decides whether work can be placed; what is equal here waits together."""

    shape: Shape
    tasks: int
    later: tuple[datetime, ...]
    """When those of its tasks may be tried that back off."""
    gang: bool
    min_tasks: int | None
    max_per_node: int | None
    single_node: bool
    occupied: frozenset[tuple[UUID, int]]
    """Where it has tasks already, if that matters to where others may go."""
    longest_seconds: int | None
    """A gap may be long enough for one and not for another."""


@dataclass(slots=True, eq=False)
class Group:
    """Work that waits together, and why."""

    alike: Alike
    entry: Entry
    shortage: Shortage
    members: dict[UUID, Workload] = field(default_factory=dict)
    reason: Reason | None = None
    said_at: int = -1
    """The revision of the columns that the reason was said of."""
    to_tell: set[UUID] = field(default_factory=set)
    """Members that are new, or were tried by a change, since the reason was said."""
    refused: bool = False
    """Of those handed out last some were not let in: there may be room for others behind them."""


def first_come(workloads: Sequence[Workload], number: int) -> Sequence[Workload]:
    return ordered(FifoSequencer(), workloads, Situation())[:number]


class WaitingRoom:
    """Everything that waits. `take` hands out what is worth a try, `park` takes back what found no place."""

    def __init__(self, cluster: Cluster, *, best: Best = first_come) -> None:
        self.found_by_timer = 0
        """Work that was placed when everything was tried, though nothing had said that it could be: a missed cure."""
        self.tries = 0
        """How many groups were handed out because of a change."""
        self.in_line: frozenset[str] = frozenset()
        """The pools in which work that lacks room stops what is behind it."""
        self.depths: Mapping[str, int] = {}
        """The pools in which so many of those that lack room have a planned start."""
        self.starts: dict[UUID, datetime] = {}
        """The planned starts of the last passes."""
        self._replanned: set[UUID] = set()
        """Those whose planned start may be other than it was."""
        self._lines: dict[str, Line] = {}
        self._cluster = cluster
        self._best = best
        self._lookout = Lookout(cluster)
        self._fresh: dict[UUID, Workload] = {}
        self._groups: dict[Alike, Group] = {}
        self._home: dict[UUID, Group] = {}
        self._gated: dict[UUID, tuple[str, ...]] = {}
        self._refused: dict[UUID, tuple[Workload, Awaits]] = {}
        self._under: dict[Tenant, set[UUID]] = {}
        """Who awaits a change of a tenant."""
        self._blocked: dict[str, dict[UUID, Workload]] = {}
        """By pool, who waits behind another that lacks room."""
        self._stirred: set[str] = set()
        """Pools in which one went away that may have stood before others."""
        self._unfinished: dict[UUID, str] = {}
        """Work of which a part was placed, with its pool: its rest, which may stand before others, comes back."""
        self._later: dict[UUID, tuple[datetime, Workload]] = {}
        self._times: list[tuple[datetime, UUID]] = []
        self._out: set[UUID] = set()
        """Members of groups that were handed out last."""
        self._by_timer: set[UUID] = set()
        """Those of them that no change had woken."""
        self._all_out = False
        """Nobody was left here when these were handed out."""
        self._unexplained: dict[Group, None] = {}
        self._owners = len(cluster.owners.values)

    @property
    def restless(self) -> bool:
        """There is more to do although nothing changes: work to look at once more, or reasons to say."""
        awaited = self._awaited
        unsure = any(entry.shape.pool not in awaited for entry in self._lookout.unsure.values())
        return bool(unsure or self._unexplained or self._cluster.timeline.relieved)

    @property
    def _awaited(self) -> set[str]:
        """The pools where work is about to come back: nobody there is handed out without it."""
        return set(self._unfinished.values())

    @property
    def settled(self) -> bool:
        """Of all that lacks room it was said why."""
        return all(group.reason is not None for group in self._unexplained)

    def admit(self, workload: Workload) -> None:
        """Work that is new here or other than it was. If it is so in nothing that matters to placement, it waits on."""
        group = self._home.get(workload.id)
        if group is not None and group.alike == self._alike(workload):
            group.members[workload.id] = workload
            self._line(workload.pool).join(workload)
            if workload.id in self._later:
                self._later[workload.id] = (self._later[workload.id][0], workload)
        elif not workload.gates or self._gated.get(workload.id) != workload.gates:
            if group is not None or self._later or self._gated or self._refused or self._blocked or self._unfinished:
                self._take_out(workload.id)
            self._fresh[workload.id] = workload

    def forget(self, workload_id: UUID) -> None:
        """Work that waits no more, or never did."""
        self._take_out(workload_id)
        if self.starts.pop(workload_id, None) is not None:
            self._cluster.timeline.drop_plan(workload_id)

    def _take_out(self, workload_id: UUID) -> None:
        for line in self._lines.values():
            line.leave(workload_id)
        self._fresh.pop(workload_id, None)
        self._later.pop(workload_id, None)
        self._gated.pop(workload_id, None)
        self._release(workload_id)
        for blocked in self._blocked.values():
            blocked.pop(workload_id, None)
        if workload_id in self._unfinished:
            self._stirred.add(self._unfinished.pop(workload_id))
        group = self._home.pop(workload_id, None)
        if group is None:
            return
        self._stirred.add(group.alike.shape.pool)
        del group.members[workload_id]
        group.to_tell.discard(workload_id)
        if not group.members:
            self._lookout.drop(group.entry)
            del self._groups[group.alike]
            self._unexplained.pop(group, None)
        elif group.entry.workload.id == workload_id:
            group.entry.workload = next(iter(group.members.values()))

    def reconsider(self, pools: Collection[str]) -> None:
        """The policy of these pools changed: everything in them is worth a try."""
        groups = [group for group in self._groups.values() if group.alike.shape.pool in pools]
        self._reconsider(workload for group in groups for workload in group.members.values())
        self._reconsider(workload for workload, _ in list(self._refused.values()) if workload.pool in pools)
        self._reconsider(w for pool in self._blocked.keys() & set(pools) for w in self._blocked[pool].values())

    def wake(self, tenants: Iterable[Tenant]) -> None:
        """These tenants use less than they did, or have other limits: who waits for that is worth a try."""
        woken = {workload_id for tenant in tenants for workload_id in self._under.get(tenant, ())}
        self._reconsider(self._refused[workload_id][0] for workload_id in woken)

    def next_time(self) -> datetime | None:
        """When the next task that backs off may be tried."""
        while self._times and self._outdated(*self._times[0]):
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def take(self, now: datetime) -> list[Workload]:
        """What is new, changed, due, or could be placed after what changed since the last look.

        Of a pool where work is about to come back nobody is handed out without it, which may be before them.
        """
        awaited = self._awaited
        self._out, self._by_timer, self._all_out = set(), set(), False
        self._note_new_owners()
        self._come_due(now)
        self._note_changed_nodes()
        fresh, self._fresh = self._fresh, {}
        taken: list[Workload] = []
        for workload in fresh.values():
            if workload.pool in awaited:
                self._fresh[workload.id] = workload
            elif _is_due(workload, now):
                taken.append(workload)
            else:
                self._remember_time(workload, now)
        for entry, room in self._lookout.cured():
            if entry.shape.pool in awaited:
                self._lookout.unsure[entry.number] = entry
                continue
            portion = self._portion(self._home[entry.workload.id], room)
            self._out.update(workload.id for workload in portion)
            taken += portion
        touched = (self._stirred | {workload.pool for workload in taken}) - awaited
        self._stirred &= awaited
        in_line = touched & (self.in_line | {pool for pool in self.depths if self._blocked.get(pool)})
        known = {workload.id for workload in taken}
        return taken + self._in_line(in_line, known) + self._heads((touched & self.depths.keys()) - in_line, known)

    def _in_line(self, pools: Collection[str], known: Collection[UUID]) -> list[Workload]:
        """Where work stops what is behind it, all that waits for room is tried together, or none of it."""
        if not pools:
            return []
        blocked = [workload for pool in pools for workload in self._blocked.pop(pool, {}).values()]
        groups = [group for group in self._groups.values() if group.alike.shape.pool in pools]
        others = [w for group in groups for w in group.members.values() if w.id not in known]
        self._out.update(workload.id for workload in others)
        return blocked + others

    def _heads(self, pools: Collection[str], known: Collection[UUID]) -> list[Workload]:
        """Those whose start is planned, anew whenever others are tried: they are the first that lack room.

        Nothing else that waits could be placed, or it would be among the others.
        """
        heads = [head for pool in pools for head in self._first_in_line(pool, known)]
        self._out.update(workload.id for workload in heads)
        return heads

    def _first_in_line(self, pool: str, known: Collection[UUID]) -> list[Workload]:
        def everybody() -> Iterable[Workload]:
            groups = (group for group in self._groups.values() if group.alike.shape.pool == pool and _lacks_room(group))
            return (workload for group in groups for workload in group.members.values())

        return self._line(pool).first(self.depths[pool], known, everybody)

    def _line(self, pool: str) -> Line:
        line = self._lines.get(pool)
        if line is None:
            line = self._lines[pool] = Line(self._best)
        return line

    def take_all(self, now: datetime) -> list[Workload]:
        """Everything, for the timer; what is placed of it though no change had woken it is counted.

        A pool where work is about to come back is left out, as in `take`.
        """
        # Priorities age and shares move: who is first is looked at anew.
        for line in self._lines.values():
            line.forget()
        taken = self.take(now)
        others = [w for group in self._groups.values() for w in group.members.values() if w.id not in self._out]
        others += [w for blocked in self._blocked.values() for w in blocked.values()]
        others += [workload for workload, _ in self._refused.values()]
        awaited = self._awaited
        if awaited:
            others = [workload for workload in others if workload.pool not in awaited]
        self._all_out = not awaited
        self._out |= {workload.id for workload in others}
        # Who was refused without a word about what to wait for is found by the timer alone.
        untold = {workload.id for workload, awaits in self._refused.values() if awaits == NOTHING}
        self._by_timer = {workload.id for workload in others} - untold
        for group in self._groups.values():
            if group.said_at != self._cluster.changes.revision:
                self._unexplained[group] = None
        return taken + others

    def park(
        self,
        result: Pass,
        profile: Profile | None,
        now: datetime,
        *,
        eager: bool = False,
        again: timedelta | None = None,
    ) -> Pass:
        """Take back what a pass could not place; the rest of the pass comes back, its reasons still to be said.

        `eager`: work that may make room for itself, or stops what is behind it, is worth a try after every change in
        its pool, and `again` after this time, when those whom it may displace have run for long enough.
        """
        if self._out:
            self._let_go(decision for decision in result.decisions if decision.outcome is not Outcome.WAITING)
        shortages = dict(result.short)
        refused = {rejection.workload.id: rejection.awaits for rejection in result.refused}
        parked: set[int] = set()
        for position, decision in enumerate(result.decisions):
            workload, shortage = decision.workload, shortages.get(position)
            if decision.outcome is not Outcome.WAITING:
                if shortage is not None and decision.placements:
                    self._unfinished[workload.id] = workload.pool
                continue
            if shortage is not None and profile is not None:
                self._park(workload, shortage, profile, eager)
                parked.add(position)
            else:
                group = self._home.get(workload.id)
                if group is not None and workload.id in refused:
                    group.refused = True
                self._take_out(workload.id)
            self._note_start(decision)
            backs_off = self._remember_time(workload, now)
            if again is not None and position in parked and not backs_off:
                self._hand_out_at(workload, now + again)
            if workload.gates:
                self._gated[workload.id] = workload.gates
            elif workload.id in refused:
                self._hold(workload, refused[workload.id])
            elif decision.reason is not None and decision.reason.code == BLOCKED:
                self._blocked.setdefault(workload.pool, {})[workload.id] = workload
            elif position not in parked and not backs_off:
                self._fresh[workload.id] = workload
        self._lookout.settle()
        if self._all_out:
            # A pass forgets planned starts before it tries anybody: all have seen the room that these left.
            self._cluster.timeline.take_relieved()
        return _without(parked, result)

    def short_of_room(self) -> list[Workload]:
        """What more nodes could help, as far as its reason was said, and what waits behind such work."""
        short = [group for group in self._groups.values() if group.reason is not None and lacks_nodes(group.reason)]
        members = [workload for group in short for workload in group.members.values()]
        return members + [workload for blocked in self._blocked.values() for workload in blocked.values()]

    def unexplained(self, most: int) -> list[Group]:
        """Groups whose reason is to be said, or said again; those that have none first."""
        first = list(islice((group for group in self._unexplained if group.reason is None), most))
        return first + list(islice((g for g in self._unexplained if g.reason is not None), most - len(first)))

    def explained(self, group: Group, reason: Reason) -> list[Decision]:
        """Note why a group waits; the decisions that are worth storing.

        To all if the gist changed. Amounts alone are told to those that were tried, since every placement moves them.
        """
        everyone = group.reason is None or _gist(group.reason) != _gist(reason)
        told = list(group.members if everyone else group.to_tell)
        if _lacks_room(group) != (reason.cure == "release"):
            self._line(group.alike.shape.pool).forget()
        group.reason, group.said_at, group.to_tell = reason, self._cluster.changes.revision, set()
        self._unexplained.pop(group, None)
        return [
            Decision(group.members[each], Outcome.WAITING, reason=reason, planned_start=self.starts.get(each))
            for each in told
        ]

    def replanned(self, told: Collection[UUID]) -> list[Decision]:
        """The decisions on those whose planned start came, moved or went in the last passes, and who were not told."""
        homes = {each: group for each in self._replanned if each not in told and (group := self._home.get(each))}
        self._replanned = set()
        return [
            Decision(group.members[each], Outcome.WAITING, reason=group.reason, planned_start=self.starts.get(each))
            for each, group in homes.items()
        ]

    def _park(self, workload: Workload, shortage: Shortage, profile: Profile, eager: bool) -> None:
        group = self._home.get(workload.id)
        if group is None:
            alike = self._alike(workload)
            group = self._groups.get(alike)
            if group is None:
                entry = Entry(workload, alike.shape, None if eager else profile)
                group = self._groups[alike] = Group(alike, entry, shortage)
                self._lookout.add(entry)
            self._home[workload.id] = group
            group.members[workload.id] = workload
            self._line(workload.pool).join(workload)
        group.shortage = shortage
        self._lookout.tried(group.entry)
        if workload.id not in self._by_timer:
            group.to_tell.add(workload.id)
            self._unexplained[group] = None

    def _note_start(self, decision: Decision) -> None:
        workload, planned = decision.workload, decision.planned_start
        if planned != self.starts.get(workload.id) or workload.planned_start != planned:
            self._replanned.add(workload.id)
        if planned is not None:
            self.starts[workload.id] = planned
        else:
            self.starts.pop(workload.id, None)

    def _hold(self, workload: Workload, awaits: Awaits) -> None:
        """Keep what was not let in until that may have changed. What it waits for of others is read with it again."""
        self._refused[workload.id] = workload, awaits
        for tenant in awaits.tenants:
            self._under.setdefault(tenant, set()).add(workload.id)
        if awaits.until is not None:
            self._hand_out_at(workload, awaits.until)

    def _release(self, workload_id: UUID) -> None:
        _, awaits = self._refused.pop(workload_id, (None, NOTHING))
        for tenant in awaits.tenants:
            waiting = self._under[tenant]
            waiting.discard(workload_id)
            if not waiting:
                del self._under[tenant]

    def _let_go(self, decisions: Iterable[Decision]) -> None:
        """Forget what was handed out and will not come back."""
        for decision in decisions:
            if decision.workload.id in self._out:
                self.found_by_timer += bool(decision.placements) and decision.workload.id in self._by_timer
                self._take_out(decision.workload.id)

    def _portion(self, group: Group, room: int) -> list[Workload]:
        """As many of a group, best first, as there may be room for; the others are looked at again after these."""
        entry, size = group.entry, len(group.entry.workload.tasks)
        if room < _at_once(entry.workload):
            return []
        self.tries += 1
        number = -(-room // max(size, 1))
        if number >= len(group.members) or group.refused:
            group.refused = False
            return list(group.members.values())
        self._lookout.unsure[entry.number] = entry
        return list(self._best(list(group.members.values()), number))

    def _reconsider(self, workloads: Iterable[Workload]) -> None:
        for workload in list(workloads):
            self._take_out(workload.id)
            self._fresh[workload.id] = workload

    def _alike(self, workload: Workload) -> Alike:
        limited = workload.max_per_node is not None or workload.single_node or workload.min_tasks is not None
        return Alike(
            shape_of(workload, self._cluster),
            len(workload.tasks),
            tuple(task.not_before for task in workload.tasks if task.not_before is not None),
            workload.gang,
            workload.min_tasks,
            workload.max_per_node,
            workload.single_node,
            frozenset(workload.occupied.items()) if limited else frozenset(),
            workload.longest_seconds,
        )

    def _come_due(self, now: datetime) -> None:
        while self._times and self._times[0][0] <= now:
            time, workload_id = heappop(self._times)
            if not self._outdated(time, workload_id):
                self._reconsider([self._later[workload_id][1]])

    def _outdated(self, time: datetime, workload_id: UUID) -> bool:
        known = self._later.get(workload_id)
        return known is None or known[0] != time

    def _remember_time(self, workload: Workload, now: datetime) -> bool:
        """Whether a task of it may be tried at a later time, when it is handed out again."""
        times = [task.not_before for task in workload.tasks if task.not_before is not None and task.not_before > now]
        if not times:
            return False
        self._hand_out_at(workload, min(times))
        return True

    def _hand_out_at(self, workload: Workload, time: datetime) -> None:
        self._later[workload.id] = (time, workload)
        heappush(self._times, (time, workload.id))

    def _note_new_owners(self) -> None:
        """Users who got a node of their own are no longer like all others to placement."""
        owners = self._cluster.owners.values
        if len(owners) > self._owners:
            new = frozenset(owners[self._owners :])
            self._owners = len(owners)
            members = [w for group in self._groups.values() for w in group.members.values()]
            self._reconsider(workload for workload in members if workload.user_id in new)

    def _note_changed_nodes(self) -> None:
        """Reasons count the nodes of a pool: where these changed, they are to be said again."""
        pools = self._lookout.changed_pools()
        for group in self._groups.values() if pools is None or pools else ():
            if pools is None or group.alike.shape.pool in pools:
                self._unexplained[group] = None


def _is_due(workload: Workload, now: datetime) -> bool:
    """Whether one of its tasks may be tried."""
    for task in workload.tasks:
        if task.not_before is None or task.not_before <= now:
            return True
    return not workload.tasks


def _at_once(workload: Workload) -> int:
    """How many tasks of it are placed together or none."""
    if workload.gang:
        return len(workload.tasks)
    if workload.min_tasks is not None:
        return max(1, min(len(workload.tasks), workload.min_tasks - sum(workload.occupied.values())))
    return 1


def _lacks_room(group: Group) -> bool:
    """Others that leave may be what a group waits for, as far as that was said."""
    return group.reason is None or group.reason.cure == "release"


def _gist(reason: Reason) -> tuple[object, ...]:
    """What is worth storing again whenever it changes."""
    return reason.code, reason.by, reason.cure, reason.details.get("rejected")


def _without(parked: Collection[int], result: Pass) -> Pass:
    if not parked:
        return result
    left = [position for position in range(len(result.decisions)) if position not in parked]
    place = {position: number for number, position in enumerate(left)}
    short = tuple((place[position], shortage) for position, shortage in result.short if position in place)
    return Pass(tuple(result.decisions[position] for position in left), short, result.refused)
