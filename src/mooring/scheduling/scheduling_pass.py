"""One scheduling pass in progress. The sequencer orders the workloads; for each of them, in turn, the pass

1. admits it: its tenants are charged at once, so that workloads behind it see the charge;
2. places it: filter, score and select (see `placer`);
3. if it finds too few nodes, refunds its tenants and, by the policy of its pool, blocks the queue behind it (strict),
   plans its start and backfills the others around it (backfill), or passes it over (skip);
4. at the end, preempts for workloads that still have no node.

Workloads that were rejected only because of a charge refunded since are tried again before the pass ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.reasons import Reason
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.calendar.backfill import Planner
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from mooring.scheduling.placer import Placer, Short
from mooring.scheduling.plugins.protocols import Offer
from mooring.scheduling.tenant_usage import tenants_of

_SMALLEST_PORTION, _LARGEST_PORTION = 64, 8192
"""Workloads tried at a time if each may affect those behind it."""
_REFUND_ROUNDS = 16
"""Rounds over workloads that a refund may admit; the rest comes first in the next pass."""

BLOCKED = "blocked"
"""The reason code of a workload that was not tried because the head of its queue lacks capacity."""


class SchedulingPass:
    """The decisions of one pass so far."""

    def __init__(
        self,
        placer: Placer,
        now: datetime,
        *,
        strict: bool = False,
        planner: Planner | None = None,
        admission: Admission | None = None,
        pieces_of: Mapping[UUID, Workload] | None = None,
    ) -> None:
        """`strict`: a workload that lacks capacity blocks all workloads behind it in its pool.

        With a `planner` it never does: its start is planned if possible, and others are placed around the plan.
        With `pieces_of`, offers may contain workloads in pieces, whose decisions are merged.
        """
        self.decisions: list[Decision] = []
        self.short: Short = []
        self.refused: list[Rejection] = []
        self._placer = placer
        self._now = now
        self._strict = strict
        self._planner = planner
        self._admission = admission
        self._pieces_of = pieces_of
        self._position: dict[UUID, int] = {}
        """The position of the decision on a workload that is offered in pieces."""
        self._blocking_heads: dict[str, Workload] = {}
        self._refunded: set[Tenant] = set()

    # Order: the sequencer makes the offers.

    def decide(self, offer: Offer) -> Sequence[Decision]:
        """Decide on an offer, or on the first workloads of one to be revised, and return the decisions."""
        if offer.revised:
            # The order changes with every placement, so plans made in another order do not stand.
            if self._planner is not None:
                self._planner.drop_previous_plans()
            return self._admit_and_place(offer.workloads, stop=True)
        if self._planner is not None:
            return self._decide_with_plans(self._planner, offer.workloads)
        if self._strict:
            return self._decide_in_portions(offer.workloads)
        return self._admit_and_place(offer.workloads, stop=False)

    def is_blocked(self, pool: str) -> bool:
        """Return whether a workload of the pool blocks all workloads behind it."""
        return pool in self._blocking_heads

    def finish(self) -> None:
        """Retry the workloads that a refund may admit, then preempt for those without a node."""
        if self._planner is not None:
            self._planner.drop_previous_plans()
        self._retry_refunded()
        if self._pieces_of is not None:
            self._merge_rejections(self._pieces_of)
        if self._placer.preemptor is not None and not self._strict:
            self._preempt([(at, unplaced) for at, unplaced in self.short if not self.decisions[at].placements])

    def _decide_in_portions(self, workloads: Sequence[Workload]) -> Sequence[Decision]:
        """Decide in portions, each ending with the first workload that finds too few nodes and may block others."""
        decided: list[Decision] = []
        size = _SMALLEST_PORTION
        while len(decided) < len(workloads):
            portion = workloads[len(decided) : len(decided) + size]
            new = self._admit_and_place(portion, stop=True)
            decided += new
            size = _next_size(size, len(new) == len(portion))
        return decided

    def _decide_with_plans(self, planner: Planner, workloads: Sequence[Workload]) -> Sequence[Decision]:
        """Plan the start of the first workloads that find too few nodes, and backfill the others around the plans."""
        decided: list[Decision] = []
        size = _SMALLEST_PORTION
        while len(decided) < len(workloads):
            left = workloads[len(decided) :]
            portion = self._portion(planner, left[:size])
            if all(planner.is_finished(workload.pool) for workload in portion):
                return [*decided, *self._backfill(planner, left)]
            if planner.has_previous_plan(portion[0]):
                new = self._admit_and_place(portion, stop=True, renewed=True)
                planner.renew(portion[0])
            else:
                new = self._admit_and_place(portion, stop=not self._is_unplanned(planner, portion[0]))
            decided += new
            size = _next_size(size, len(new) == len(portion))
        return decided

    def _portion(self, planner: Planner, workloads: Sequence[Workload]) -> Sequence[Workload]:
        """Return the first workloads to decide on together.

        A workload with a planned start is decided on alone. Workloads known to have none do not affect those behind
        them, so they share a portion.
        """
        if planner.has_previous_plan(workloads[0]) or len(workloads) == 1:
            return workloads[:1]
        unplanned = self._is_unplanned(planner, workloads[0])
        return list(
            takewhile(
                lambda each: not planner.has_previous_plan(each) and self._is_unplanned(planner, each) == unplanned,
                workloads,
            )
        )

    def _is_unplanned(self, planner: Planner, workload: Workload) -> bool:
        """Return whether the workload is known to have no planned start and does not preempt when it is offered."""
        return planner.why_unplanned(workload) is not None and (
            self._placer.preemptor is None or not planner.has_waited_too_long(workload)
        )

    def _backfill(self, planner: Planner, workloads: Sequence[Workload]) -> Sequence[Decision]:
        """Decide on all workloads behind those with a planned start."""
        planner.drop_previous_plans()
        left, decided = list(planner.backfill_order(workloads)), list[Decision]()
        while left:
            new = self._admit_and_place(left, stop=False)
            decided += new
            del left[: len(new)]
        return decided

    # Admit, place, refund.

    def _admit_and_place(
        self, workloads: Sequence[Workload], *, stop: bool, renewed: bool = False
    ) -> Sequence[Decision]:
        """Decide on workloads in order; with `stop`, up to the first that is rejected or finds too few nodes.

        `renewed`: the workload had a planned start, so the plans behind it do not give way.
        """
        if self._blocking_heads:
            blocked = list(takewhile(lambda workload: workload.pool in self._blocking_heads, workloads))
            if blocked:
                return self._append([self._blocked(workload) for workload in blocked], [])
            workloads = list(takewhile(lambda workload: workload.pool not in self._blocking_heads, workloads))
        if self._admission is None:
            return self._place(workloads, workloads, stop, renewed)
        asked, admitted, rejected = self._admit(self._admission, workloads, stop)
        decisions = self._place(asked, admitted, stop, renewed)
        if stop and decisions and _lacks_nodes(decisions[-1]):
            # The rejected workload is behind the one that lacks nodes, so it is not decided on yet.
            return decisions
        self.refused += rejected
        return [*decisions, *map(rejected_decision, rejected)]

    def _admit(
        self, admission: Admission, workloads: Sequence[Workload], stop: bool
    ) -> tuple[list[Workload], list[Workload], list[Rejection]]:
        """Return the admitted workloads as requested and as admitted, which may be fewer tasks, and the rejections."""
        asked: list[Workload] = []
        admitted: list[Workload] = []
        rejected: list[Rejection] = []
        for workload in workloads:
            answer = admission.admit(workload)
            if isinstance(answer, Workload):
                asked.append(workload)
                admitted.append(answer)
                continue
            rejected.append(answer)
            if stop:
                break
        return asked, admitted, rejected

    def _place(
        self, asked: Sequence[Workload], admitted: Sequence[Workload], stop: bool, renewed: bool
    ) -> Sequence[Decision]:
        """Place admitted workloads, and refund tasks that found no node or were not decided on."""
        if not admitted:
            return []
        decisions, short = self._tried(admitted, stop, renewed)
        if stop and short and decisions[-1].planned_start is None:
            self._handle_unschedulable(decisions, short, admitted, renewed)
        elif self._planner is not None:
            _explain_unplanned(self._planner, short, admitted)
        if self._admission is not None:
            self._refund_unplaced(self._admission, decisions, asked, admitted)
        return self._append(decisions, short)

    def _tried(self, admitted: Sequence[Workload], stop: bool, renewed: bool) -> tuple[list[Decision], Short]:
        """Place workloads, except one whose planned start stands because nothing has changed since it was planned."""
        if renewed and self._planner is not None:
            held = self._planner.hold(admitted[0])
            if held is not None:
                return [held.decision], [(0, held.unplaced)]
            self._planner.renew(admitted[0])
        return self._placer.place(admitted, self._now, stop=stop)

    def _refund_unplaced(
        self,
        admission: Admission,
        decisions: list[Decision],
        asked: Sequence[Workload],
        admitted: Sequence[Workload],
    ) -> None:
        for workload in admitted[len(decisions) :]:
            admission.refund(workload)
        for at, (whole, workload) in enumerate(zip(asked, admitted[: len(decisions)], strict=False)):
            decision = decisions[at]
            missing = len(workload.tasks) - len(decision.placements)
            if missing:
                admission.refund(workload, missing)
                self._refunded.update(tenants_of(workload))
            decisions[at] = decision._replace(workload=whole, checked=admission.passed(workload))

    # The last workload of a portion found too few nodes.

    def _handle_unschedulable(
        self, decisions: list[Decision], short: Short, admitted: Sequence[Workload], renewed: bool
    ) -> None:
        if self._planner is None:
            if self._strict:
                self._preempt_or_block(decisions, short)
        elif renewed or self._planner.was_passed_over(admitted[short[-1][0]]):
            self._plan_or_preempt(self._planner, decisions, short, renewed=renewed)
        else:
            self._retry_without_plans_behind(self._planner, decisions, short, admitted)

    def _preempt_or_block(self, decisions: list[Decision], short: Short) -> None:
        """Preempt for a workload that lacks capacity; if that fails, it blocks those behind it."""
        at, unplaced = short[-1]
        decision = decisions[at]
        if not _may_wait(decision) or not self._placer.waits_for_release(decision, unplaced):
            return
        if not self._preempt_now(decisions, short):
            self._blocking_heads[decision.workload.pool] = decision.workload

    def _retry_without_plans_behind(
        self, planner: Planner, decisions: list[Decision], short: Short, admitted: Sequence[Workload]
    ) -> None:
        """Let plans give way to a workload ahead of them that has no plan, if that helps it."""
        at, _ = short[-1]
        suspended = planner.give_way(admitted[at].pool)
        if suspended and not decisions[at].placements:
            again, lacking = self._placer.place([admitted[at]], self._now, stop=True)
            decisions[at:] = again
            short[-1:] = [(at, unplaced) for _, unplaced in lacking]
        if short and short[-1][0] == at:
            self._plan_or_preempt(planner, decisions, short)
        helped = bool(decisions[at].placements) or decisions[at].planned_start is not None
        planner.settle(suspended, stand=not helped)

    def _plan_or_preempt(
        self, planner: Planner, decisions: list[Decision], short: Short, *, renewed: bool = False
    ) -> None:
        """Plan the start of a workload; if that is impossible, others pass it, but not for too long.

        A workload that had a planned start (`renewed`) gets one again even if work ahead of it has used up the depth.
        """
        at, unplaced = short[-1]
        decision = decisions[at]
        workload = decision.workload
        if not _may_wait(decision) or (planner.is_spent(workload.pool) and not renewed):
            return
        planned = planner.plan(workload, unplaced)
        nodes = None if planned.start is None else planner.nodes_at(workload, planned.start)
        decisions[at] = decision._replace(planned_start=planned.start, planned_nodes=nodes)
        if planned.why is not unplaced.unplanned:
            short[-1] = (at, replace(unplaced, unplanned=planned.why))
        planner.remember(decisions[at], unplaced)
        overdue = planned.start is None and planner.has_waited_too_long(workload)
        if overdue and self._placer.waits_for_release(decision, unplaced):
            self._preempt_now(decisions, short)

    def _preempt_now(self, decisions: list[Decision], short: Short) -> bool:
        """Preempt for the last workload before those behind it are placed; return False if that is impossible."""
        at, unplaced = short[-1]
        decision = decisions[at]
        if self._placer.preemptor is None or decision.placements:
            return False
        reserved = self._placer.preempt([(decision.workload, max(unplaced.least, 1))], self._now)[0]
        if reserved is None:
            return False
        decisions[at] = reserved
        short.pop()
        return True

    def _blocked(self, workload: Workload) -> Decision:
        head = self._blocking_heads[workload.pool]
        return Decision(workload, Outcome.WAITING, reason=behind(head, workload))

    # The end of the pass.

    def _retry_refunded(self) -> None:
        """Retry the workloads that were rejected because of a charge refunded since."""
        for _ in range(_REFUND_ROUNDS):
            again = self._rejected_for_refunded()
            if not again:
                break
            self.refused = [rejection for rejection in self.refused if rejection.workload.id not in again]
            self._refunded = set()
            self._admit_and_place([rejection.workload for rejection in again.values()], stop=False)
        left = self._rejected_for_refunded()
        if left:
            self.refused = [_due_now(each, self._now) if each.workload.id in left else each for each in self.refused]

    def _rejected_for_refunded(self) -> dict[UUID, Rejection]:
        """Return the rejections that a refund may undo, by workload and in order."""
        if not self._refunded:
            return {}
        return {
            rejection.workload.id: rejection
            for rejection in self.refused
            if rejection.workload.pool not in self._blocking_heads
            and not self._refunded.isdisjoint(rejection.awaits.tenants)
        }

    def _preempt(self, short: Short) -> None:
        """Preempt for workloads that found no node, in order, if they are admitted once more."""
        done: set[int] = set()
        size = 1 if self._placer.preempts_one_at_a_time else max(len(short), 1)
        for first in range(0, len(short), size):
            asked: list[tuple[Workload, int]] = []
            positions: list[int] = []
            for at, unplaced in short[first : first + size]:
                workload = self.decisions[at].workload
                answer = workload if self._admission is None else self._admission.admit(workload)
                if isinstance(answer, Workload):
                    positions.append(at)
                    asked.append((answer, max(unplaced.least, 1)))
            reserved = self._placer.preempt(asked, self._now)
            for at, (workload, _), decision in zip(positions, asked, reserved, strict=True):
                if decision is not None:
                    done.add(at)
                    before = self.decisions[at]
                    self.decisions[at] = decision._replace(workload=before.workload, checked=before.checked)
                if self._admission is not None:
                    placements = () if decision is None else decision.placements
                    self._admission.refund(workload, len(workload.tasks) - len(placements))
        self.short = [(at, unplaced) for at, unplaced in self.short if at not in done]

    # The result: decisions in the order in which they were made, one per workload.

    def _append(self, decisions: list[Decision], short: Short) -> Sequence[Decision]:
        if self._pieces_of is not None:
            self._merge_pieces(self._pieces_of, decisions, dict(short))
            return decisions
        base = len(self.decisions)
        if not base:
            self.decisions, self.short = decisions, short
            return tuple(decisions)
        self.decisions += decisions
        self.short += [(base + at, unplaced) for at, unplaced in short]
        return decisions

    def _merge_pieces(
        self, wholes: Mapping[UUID, Workload], decisions: Sequence[Decision], short: Mapping[int, UnplacedTasks]
    ) -> None:
        for number, decision in enumerate(decisions):
            whole = wholes[decision.workload.id]
            at = self._position.get(whole.id)
            if at is None:
                at = self._position[whole.id] = len(self.decisions)
                self.decisions.append(decision._replace(workload=whole))
            else:
                before = self.decisions[at]
                placements = before.placements + decision.placements
                outcome = before.outcome if before.placements else decision.outcome
                self.decisions[at] = decision._replace(workload=whole, placements=placements, outcome=outcome)
            if number in short:
                self.short.append((at, short[number]))

    def _merge_rejections(self, wholes: Mapping[UUID, Workload]) -> None:
        """Merge the decisions on workloads of which one piece was placed and another rejected."""
        left: list[Rejection] = []
        for rejection in self.refused:
            at = self._position.get(rejection.workload.id)
            if at is not None and self.decisions[at].placements:
                self.decisions[at] = self.decisions[at]._replace(reason=rejection.reason, checked=rejection.checked)
            else:
                left.append(replace(rejection, workload=wholes[rejection.workload.id]))
        self.refused = left


def rejected_decision(rejection: Rejection) -> Decision:
    """Return the decision on a workload that was not admitted: it stays pending."""
    return Decision(rejection.workload, Outcome.WAITING, reason=rejection.reason, checked=rejection.checked)


def behind(head: Workload, workload: Workload) -> Reason:
    """Return the reason of a workload that was not tried. Workloads of other users are not named."""
    waits, details = "which waits for capacity", {"priority": head.priority}
    if head.user_id != workload.user_id:
        message = f"it is behind a workload of priority {head.priority}, {waits}"
        return Reason(BLOCKED, message, "head_of_line", "release", details)
    named = details | {"blocker": str(head.id), "name": head.name}
    return Reason(BLOCKED, f"it is behind {head.name or head.id}, {waits}", "head_of_line", "release", named)


def _explain_unplanned(planner: Planner, short: Short, admitted: Sequence[Workload]) -> None:
    """Note why workloads have no planned start, as far as it is known from others alike."""
    for number, (at, unplaced) in enumerate(short):
        why = planner.why_unplanned(admitted[at])
        if why is not None:
            planner.pass_over(admitted[at])
            short[number] = at, replace(unplaced, unplanned=why)


def _due_now(rejection: Rejection, now: datetime) -> Rejection:
    return replace(rejection, awaits=replace(rejection.awaits, until=now))


def _next_size(size: int, all_decided: bool) -> int:
    return min(size * 2, _LARGEST_PORTION) if all_decided else max(size // 2, _SMALLEST_PORTION)


def _may_wait(decision: Decision) -> bool:
    return decision.outcome in (Outcome.WAITING, Outcome.PLACED)


def _lacks_nodes(decision: Decision) -> bool:
    return len(decision.placements) < len(decision.workload.tasks)
