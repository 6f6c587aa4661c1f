"""A pass in progress: who is let in, who finds room, and who stops those behind.

What is admitted is charged to its tenants at once, so that those behind see it; what then finds no place is refunded,
and those whom only that charge kept out are looked at again in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import TypeAlias
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.quotas import Tenant
from mooring.model.reasons import Reason
from mooring.model.workloads import Workload
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.backfill import Planner
from mooring.scheduling.plugins import Offer
from mooring.scheduling.shortage import Shortage
from mooring.scheduling.usage import tenants_of

_FEWEST, _MOST = 64, 8192
"""Workloads tried at a time where each may stop those behind it."""
_LOOKS = 16
"""Rounds over those whom a refund may let in; who is left then comes first in the next pass."""

BLOCKED = "blocked"
"""The code of the reason why work waits that was not tried."""

Short: TypeAlias = list[tuple[int, Shortage]]
Decide: TypeAlias = Callable[[Sequence[Workload], bool], tuple[list[Decision], Short]]
"""Places workloads in their turn; where told to stop, the first that finds too little room is the last."""
Plan: TypeAlias = Callable[[Sequence[tuple[Workload, int]]], Sequence[Decision | None]]
"""Reserves places that others have to leave; workloads come with how many tasks are wanted at least."""
LacksRoom: TypeAlias = Callable[[Decision, Shortage], bool]


class Round:
    """What one pass has decided so far."""

    def __init__(
        self,
        decide: Decide,
        now: datetime,
        *,
        plan: Plan | None = None,
        one_plan_at_a_time: bool = False,
        admission: Admission | None = None,
        stops: LacksRoom | None = None,
        planner: Planner | None = None,
        pieces_of: Mapping[UUID, Workload] | None = None,
    ) -> None:
        """With `stops`, a workload of which it is true stops all that come behind it in its pool.

        With a `planner` it does not, if its start can be planned: those behind it are placed so that it stays possible.

        With `pieces_of`, offers may bring workloads in pieces; what is decided is put together for the whole.
        `one_plan_at_a_time`: a plan asks what its project uses, so that none is charged before its turn.
        """
        self.decisions: list[Decision] = []
        self.short: Short = []
        self.refused: list[Rejection] = []
        self._decide = decide
        self._now = now
        self._plan = plan
        self._one_plan_at_a_time = one_plan_at_a_time
        self._admission = admission
        self._stops = stops
        self._planner = planner
        self._pieces_of = pieces_of
        self._at: dict[UUID, int] = {}
        """Where the decision stands on a workload that came in pieces."""
        self._blockers: dict[str, Workload] = {}
        self._refunded: set[Tenant] = set()

    def take(self, offer: Offer) -> Sequence[Decision]:
        """Decide on an offer, or on the first of one that is to be revised; comes back with what became of them."""
        if offer.revised:
            return self._try(offer.workloads, stop=True)
        if self._stops is None:
            return self._try(offer.workloads, stop=False)
        decided: list[Decision] = []
        size = _FEWEST
        while len(decided) < len(offer.workloads):
            portion = offer.workloads[len(decided) : len(decided) + size]
            if self._is_planned(portion):
                return [*decided, *self._fill_gaps(offer.workloads[len(decided) :])]
            new = self._try(portion, stop=True)
            decided += new
            size = min(size * 2, _MOST) if len(new) == len(portion) else max(size // 2, _FEWEST)
        return decided

    def finish(self) -> None:
        """Look again at those whom a refund may let in, and let those make room for themselves who found none."""
        for _ in range(_LOOKS):
            again = self._kept_out_by_refunded()
            if not again:
                break
            self.refused = [rejection for rejection in self.refused if rejection.workload.id not in again]
            self._refunded = set()
            self._try([rejection.workload for rejection in again.values()], stop=False)
        left = self._kept_out_by_refunded()
        if left:
            self.refused = [_again_soon(each, self._now) if each.workload.id in left else each for each in self.refused]
        if self._pieces_of is not None:
            self._say_why_rest_waits()
        if self._plan is not None and (self._stops is None or self._planner is not None):
            self._make_room([(at, shortage) for at, shortage in self.short if not self.decisions[at].placements])

    def _try(self, workloads: Sequence[Workload], *, stop: bool) -> Sequence[Decision]:
        """Decide on workloads in their turn; with `stop` until the first that is refused or finds too little room."""
        if self._blockers:
            blocked = list(takewhile(lambda workload: workload.pool in self._blockers, workloads))
            if blocked:
                return self._append([self._blocked(workload) for workload in blocked], [])
            workloads = list(takewhile(lambda workload: workload.pool not in self._blockers, workloads))
        if self._admission is None:
            return self._settle(workloads, workloads, stop)
        asked: list[Workload] = []
        admitted: list[Workload] = []
        refused: list[Rejection] = []
        for workload in workloads:
            answer = self._admission.admit(workload)
            if isinstance(answer, Workload):
                asked.append(workload)
                admitted.append(answer)
                continue
            refused.append(answer)
            if stop:
                break
        settled = self._settle(asked, admitted, stop)
        if stop and settled and _lacks(settled[-1]):
            # Who is behind it is not decided on yet.
            return settled
        self.refused += refused
        return [*settled, *map(kept_out, refused)]

    def _settle(self, asked: Sequence[Workload], admitted: Sequence[Workload], stop: bool) -> Sequence[Decision]:
        """Place what was admitted; what found no place, or was not decided on, is refunded."""
        decisions, short = self._decide(admitted, stop)
        if self._stops is not None and short and stop:
            self._stop_or_make_room(decisions, short)
        if self._admission is not None:
            for workload in admitted[len(decisions) :]:
                self._admission.refund(workload)
            for at, (whole, workload) in enumerate(zip(asked, admitted[: len(decisions)], strict=False)):
                decision = decisions[at]
                missing = len(workload.tasks) - len(decision.placements)
                if missing:
                    self._refund(workload, missing)
                decisions[at] = decision._replace(workload=whole, checked=self._admission.passed(workload))
        return self._append(decisions, short)

    def _stop_or_make_room(self, decisions: list[Decision], short: Short) -> None:
        """The last one found too little room: it makes room for itself, or stops those behind it, or is passed over."""
        assert self._stops is not None
        at, shortage = short[-1]
        decision = decisions[at]
        if decision.outcome not in (Outcome.WAITING, Outcome.PLACED):
            return
        if self._planner is None:
            stops = self._stops(decision, shortage)
        else:
            decisions[at], stops = self._plan_start(self._planner, self._stops, decision, shortage)
        if not stops:
            return
        planned = None
        if self._plan is not None and not decision.placements:
            planned = self._plan([(decision.workload, max(shortage.least, 1))])[0]
        if planned is None:
            self._blockers[decision.workload.pool] = decision.workload
        else:
            decisions[at] = planned
            short.pop()

    def _is_planned(self, workloads: Sequence[Workload]) -> bool:
        """Whether all planned starts that their pools may have are there."""
        planner = self._planner
        return planner is not None and all(planner.is_spent(workload.pool) for workload in workloads)

    def _fill_gaps(self, workloads: Sequence[Workload]) -> Sequence[Decision]:
        """Decide on all that come behind those with a planned start."""
        assert self._planner is not None
        left, decided = list(self._planner.in_turn(workloads)), list[Decision]()
        while left:
            new = self._try(left, stop=False)
            decided += new
            del left[: len(new)]
        return decided

    def _plan_start(
        self, planner: Planner, lacks_room: LacksRoom, decision: Decision, shortage: Shortage
    ) -> tuple[Decision, bool]:
        """The decision with its planned start, and whether it stops those behind it.

        Work that has no planned start is passed over, for as long as the pool allows.
        """
        workload = decision.workload
        if planner.is_spent(workload.pool):
            return decision, False
        start = planner.plan(workload, shortage)
        is_head = start is not None or lacks_room(decision, shortage)
        planner.count(workload, lacks_room=is_head)
        if not is_head:
            return decision, False
        stops = start is None and planner.has_waited_too_long(workload)
        return decision._replace(planned_start=start), stops

    def _make_room(self, nowhere: Short) -> None:
        """Reserve places for workloads that found none, in their turn, if they are let in once more."""
        assert self._plan is not None
        done: set[int] = set()
        size = 1 if self._one_plan_at_a_time else max(len(nowhere), 1)
        for first in range(0, len(nowhere), size):
            asked: list[tuple[Workload, int]] = []
            positions: list[int] = []
            for at, shortage in nowhere[first : first + size]:
                workload = self.decisions[at].workload
                answer = workload if self._admission is None else self._admission.admit(workload)
                if isinstance(answer, Workload):
                    positions.append(at)
                    asked.append((answer, max(shortage.least, 1)))
            for at, (workload, _), planned in zip(positions, asked, self._plan(asked), strict=True):
                if planned is not None:
                    done.add(at)
                    kept = self.decisions[at]
                    self.decisions[at] = planned._replace(workload=kept.workload, checked=kept.checked)
                if self._admission is not None:
                    placements = () if planned is None else planned.placements
                    self._admission.refund(workload, len(workload.tasks) - len(placements))
        self.short = [(at, shortage) for at, shortage in self.short if at not in done]

    def _append(self, decisions: list[Decision], short: Short) -> Sequence[Decision]:
        if self._pieces_of is not None:
            self._put_together(self._pieces_of, decisions, dict(short))
            return decisions
        base = len(self.decisions)
        if not base:
            self.decisions, self.short = decisions, short
            return tuple(decisions)
        self.decisions += decisions
        self.short += [(base + at, shortage) for at, shortage in short]
        return decisions

    def _put_together(
        self, wholes: Mapping[UUID, Workload], decisions: Sequence[Decision], short: Mapping[int, Shortage]
    ) -> None:
        for number, decision in enumerate(decisions):
            whole = wholes[decision.workload.id]
            at = self._at.get(whole.id)
            if at is None:
                at = self._at[whole.id] = len(self.decisions)
                self.decisions.append(decision._replace(workload=whole))
            else:
                before = self.decisions[at]
                placements = before.placements + decision.placements
                outcome = before.outcome if before.placements else decision.outcome
                self.decisions[at] = decision._replace(workload=whole, placements=placements, outcome=outcome)
            if number in short:
                self.short.append((at, short[number]))

    def _say_why_rest_waits(self) -> None:
        """Of a workload of which a piece was placed and another not let in, one decision says both."""
        left: list[Rejection] = []
        for rejection in self.refused:
            at = self._at.get(rejection.workload.id)
            if at is not None and self.decisions[at].placements:
                self.decisions[at] = self.decisions[at]._replace(reason=rejection.reason, checked=rejection.checked)
            elif self._pieces_of is not None:
                left.append(replace(rejection, workload=self._pieces_of[rejection.workload.id]))
        self.refused = left

    def _refund(self, workload: Workload, tasks: int) -> None:
        assert self._admission is not None
        self._admission.refund(workload, tasks)
        self._refunded.update(tenants_of(workload))

    def _kept_out_by_refunded(self) -> dict[UUID, Rejection]:
        """By workload, in their turn."""
        if not self._refunded:
            return {}
        return {
            rejection.workload.id: rejection
            for rejection in self.refused
            if rejection.workload.pool not in self._blockers and not self._refunded.isdisjoint(rejection.awaits.tenants)
        }

    def _blocked(self, workload: Workload) -> Decision:
        blocker = self._blockers[workload.pool]
        return Decision(workload, Outcome.WAITING, reason=behind(blocker, workload))


def kept_out(rejection: Rejection) -> Decision:
    return Decision(rejection.workload, Outcome.WAITING, reason=rejection.reason, checked=rejection.checked)


def _again_soon(rejection: Rejection, now: datetime) -> Rejection:
    return replace(rejection, awaits=replace(rejection.awaits, until=now))


def behind(blocker: Workload, workload: Workload) -> Reason:
    """Why work is not tried: what is before it has to find room first. Other people's workloads are not named."""
    waits, details = "which waits for room", {"priority": blocker.priority}
    if blocker.user_id != workload.user_id:
        return Reason(
            BLOCKED,
            f"it is behind a workload of priority {blocker.priority}, {waits}",
            "head_of_line",
            "release",
            details,
        )
    named = details | {"blocker": str(blocker.id), "name": blocker.name}
    return Reason(BLOCKED, f"it is behind {blocker.name or blocker.id}, {waits}", "head_of_line", "release", named)


def _lacks(decision: Decision) -> bool:
    return len(decision.placements) < len(decision.workload.tasks)
