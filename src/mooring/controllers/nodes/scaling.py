"""Scaling: request nodes for work that lacks capacity, match nodes that join to requests, and release idle nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog

from mooring.clock import monotonic, now
from mooring.controllers.leadership.loops import Alarm
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.scheduling.unmet_demand import DemandQuery, UnmetDemand
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.calendar.timeslots import Timeslot
from mooring.model.nodes.node import Node
from mooring.model.nodes.node_templates import (
    OPEN,
    NodeTemplate,
    PackingCost,
    ScaleRequest,
    ScaleRequestStatus,
    ScaleUp,
    Shrink,
    Stock,
    late_at,
)
from mooring.model.workloads.workload import OnInsufficient, Workload, new_tasks
from mooring.scheduling.autoscaling.match_scale_requests import expected
from mooring.scheduling.autoscaling.node_requests import scale_up
from mooring.scheduling.autoscaling.scale_down import NodeUse, Step, scale_down
from mooring.scheduling.autoscaling.scale_up import NO_TEMPLATE
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.nodes import nodes, pools
from mooring.store.nodes.pools import Pool
from mooring.store.reservations import timeslots
from mooring.store.scaling import (
    node_templates,
    scale_requests,
    scaled_nodes,
    scaling_states,
)
from mooring.store.scaling.scaled_nodes import ScaledNode
from mooring.store.scaling.scaling_states import (
    NOTHING,
    Advised,
    ScalingState,
    Unmet,
)
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_ACTOR = "scaling"
"""The name of this loop in the history of nodes; it resumes only nodes that it drained itself."""
_SPARE = "idle, and its pool does not need it"
"""The drain reason of idle nodes."""
_GATHER_SECONDS = 2.0
"""Delay from the first unmet demand of a pool to its scale request, which covers all demand that arrives meanwhile."""
_PAUSE_SECONDS = 2.0
"""Minimum time between two evaluations."""
_REST = 10
"""After computing a scale-up, the loop pauses this many times as long as the computation took."""
_LATE = timedelta(days=1)
"""A node that joins within this time after its request expired is still matched to the request."""
_UNMET_SAID = 100
"""Maximum number of workloads per pool with a stored reason why no nodes are requested for them."""


@dataclass(frozen=True, slots=True)
class _View:
    """The stored state that scaling depends on."""

    pools: Mapping[str, Pool]
    templates: Mapping[str, Sequence[NodeTemplate]]
    requests: Sequence[ScaleRequest]
    """Open requests, and those that ended recently."""
    newcomers: Sequence[tuple[Node, datetime]]
    nodes: Sequence[ScaledNode]
    others: Mapping[str, int]
    at_risk: Sequence[tuple[Timeslot, int]]
    """Timeslots that lost capacity, each with the number of tasks without capacity."""
    states: Mapping[str, ScalingState]

    def requests_of(self, pool: str) -> list[ScaleRequest]:
        return [request for request in self.requests if request.pool == pool]

    def nodes_of(self, pool: str) -> list[ScaledNode]:
        return [node for node in self.nodes if node.pool == pool]


@dataclass(slots=True)
class _Changes:
    """The changes of one evaluation for all pools, written in one transaction."""

    new: list[ScaleRequest] = field(default_factory=list)
    resumed: list[ScaledNode] = field(default_factory=list)
    drained: list[ScaledNode] = field(default_factory=list)
    states: dict[str, ScalingState] = field(default_factory=dict)


class ScalingLoop:
    def __init__(
        self,
        database: FencedDatabase,
        scheduling: SchedulingLoop,
        *,
        gather_seconds: float = _GATHER_SECONDS,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._database = database
        self._scheduling = scheduling
        self._gather = timedelta(seconds=gather_seconds)
        self._pause_seconds = pause_seconds
        self._rest_until = float("-inf")
        self._resting = False
        """An iteration was due during the pause."""
        self._alarm = Alarm()
        self._short_since: dict[str, datetime] = {}

    def wait_seconds(self, max_seconds: float) -> float:
        """Return the seconds until the alarm, or until the pause ends if that is later or an iteration is due."""
        rest = self._rest_until - monotonic()
        if self._resting:
            return max(0.01, rest)
        return max(self._alarm.wait_seconds(max_seconds), min(rest, max_seconds))

    async def once(self) -> bool:
        self._resting = monotonic() < self._rest_until
        if not self._resting:
            self._rest_until = monotonic() + self._pause_seconds
            await self._evaluate()
        return False

    async def _evaluate(self) -> None:
        at = now()
        self._alarm.set()
        view = await self._read(at)
        if self._settled(view, at):
            await self._database.write(partial(self._settle, at))
            view = await self._read(at)
        resting = self._cooling_down(view, at)
        generations = {node.id: node.generation for node in view.nodes}
        short = await self._scheduling.unmet_demand(DemandQuery(resting, generations, self._booked(view, at)))
        if short is None:
            self._note_time(at + timedelta(seconds=self._pause_seconds))
            return
        self._short_since = {pool: self._short_since.get(pool, at) for pool in short.waiting}
        changes = _Changes()
        for name in sorted({*view.templates, *short.waiting, *view.states} & view.pools.keys()):
            before = view.states.get(name, NOTHING)
            unmet = before.unmet if name in resting else ()
            if name in short.waiting:
                unmet = await self._scale_up(view, short, name, at, changes)
            wanted = any(workload not in _hopeless(unmet) for workload in short.lacking.get(name, ()))
            state = _since(ScalingState(unmet, _scale_down(view, name, at, wanted, changes)), before)
            if state != before:
                changes.states[name] = state
            for due in _may_go_at(view, name):
                if due > at:
                    self._note_time(due)
        if changes != _Changes():
            await self._database.write(partial(self._write, at, changes))

    async def _read(self, at: datetime) -> _View:
        async with self._database.read() as connection:
            return await _view(connection, at)

    def _cooling_down(self, view: _View, at: datetime) -> set[str]:
        """Return the pools whose last scale request is within the cooldown."""
        resting: set[str] = set()
        for name, pool in view.pools.items():
            asked_at = _requested_at(view, name)
            over = None if asked_at is None else asked_at + timedelta(seconds=pool.policy.scaling.cooldown_seconds)
            if over is not None and at < over:
                resting.add(name)
                self._note_time(over)
        return resting

    def _booked(self, view: _View, at: datetime) -> list[Workload]:
        """Return work for the timeslots that lost capacity and start so soon that nodes must be requested now."""
        booked: list[Workload] = []
        for slot, missing in view.at_risk:
            templates = view.templates.get(slot.pool, ())
            if not templates or view.pools[slot.pool].policy.on_insufficient is not OnInsufficient.SCALE_UP:
                continue
            due = slot.eligible_at - timedelta(seconds=max(template.boot_seconds for template in templates))
            if due <= at:
                booked.append(_work_of(slot, missing, view.pools[slot.pool]))
            else:
                self._note_time(due)
        return booked

    def _has_gathered(self, pool: str, at: datetime) -> bool:
        gathered_at = self._short_since[pool] + self._gather
        if at < gathered_at:
            self._note_time(gathered_at)
        return at >= gathered_at

    def _note_time(self, at: datetime) -> None:
        self._alarm.set(self._alarm.at, at)

    async def _scale_up(
        self, view: _View, short: UnmetDemand, pool: str, at: datetime, changes: _Changes
    ) -> tuple[Unmet, ...]:
        """Resume drained nodes or request new ones. Return the workloads for which no nodes are requested."""
        spare = [node for node in view.nodes_of(pool) if node.draining and node.drained_by == _ACTOR]
        changes.resumed += spare
        if spare or not self._has_gathered(pool, at):
            return view.states.get(pool, NOTHING).unmet
        refused = _refused(view, pool, at)
        stocks = [_stock(view, template) for template in view.templates.get(pool, ()) if template.name not in refused]
        rules = view.pools[pool].policy.scaling
        began = monotonic()
        # On a copy and in another thread: it may take a second, and passes continue meanwhile.
        answer = await asyncio.to_thread(
            scale_up, short.cluster, short.profiles[pool], short.waiting[pool], stocks, now=at, rules=rules
        )
        self._rest_until = max(self._rest_until, monotonic() + _REST * (monotonic() - began))
        changes.new += _requests(answer, at)
        return _unmet(answer, refused)

    def _settled(self, view: _View, at: datetime) -> bool:
        """Return whether a node joined for a request, or a request has expired."""
        late = any(request.status in OPEN and request.expires_at <= at for request in view.requests)
        return late or bool(_joined(view))

    async def _settle(self, at: datetime, connection: Connection, term: int) -> None:
        view = await _view(connection, at)
        found = _joined(view)
        for node, request in found:
            await scaled_nodes.note_joined(
                connection, node.id, template=request.template, request_id=request.id, now=at, term=term
            )
            _log.info(f"Node {node.name} joined for request {request.id} (template {request.template})")
        ids = {request.id for _, request in found}
        ids |= {request.id for request in view.requests if request.status in OPEN and request.expires_at <= at}
        changed: list[ScaleRequest] = []
        for request in await scale_requests.locked(connection, sorted(ids)):
            joined = request.joined + sum(asked_for.id == request.id for _, asked_for in found)
            changed.append(_after_match(replace(request, joined=joined), at))
        await scale_requests.save(connection, changed, now=at, term=term)

    async def _write(self, at: datetime, changes: _Changes, connection: Connection, term: int) -> None:
        await scale_requests.insert_new(connection, changes.new, now=at, term=term)
        for request in changes.new:
            proven = _shown_packing(request.packing)
            _log.info(
                f"Pool {request.pool} requests nodes of template {request.template}: {len(request.wanted)}{proven}"
            )
        for node in changes.resumed:
            await nodes.set_draining(connection, node.id, False, actor=_ACTOR, now=at)
            _log.info(f"Node {node.name} is needed again and accepts work")
        for node in changes.drained:
            await nodes.lock(connection, node.id)
            if await scaled_nodes.is_spare(connection, node.id):
                await nodes.set_draining(connection, node.id, True, actor=_ACTOR, now=at, reason=_SPARE)
                _log.info(f"Node {node.name} is drained: {_SPARE}")
        for advised in await scaling_states.save(connection, changes.states, now=at, term=term):
            _log.info(f"Node {advised.node} is not needed: {advised.step} it")


async def _view(connection: Connection, at: datetime) -> _View:
    templates = await node_templates.by_pool(connection)
    requests = await scale_requests.of_interest(connection, at - _LATE)
    # Most clusters have neither, and need no scan of all nodes.
    may_change = bool(templates or requests)
    newcomers: list[tuple[Node, datetime]] = []
    if any(request.coming for request in requests):
        first = min(request.created_at for request in requests if request.coming)
        joined_at = dict(await scaled_nodes.newcomers(connection, first))
        found = await nodes.load(connection, sorted(joined_at))
        newcomers = sorted(((node, joined_at[node.id]) for node in found), key=lambda each: (each[1], each[0].name))
    return _View(
        pools={pool.name: pool for pool in await pools.all_pools(connection)},
        templates=templates,
        requests=requests,
        newcomers=newcomers,
        nodes=await scaled_nodes.load(connection) if may_change else (),
        others=await scaled_nodes.others(connection) if may_change else {},
        at_risk=await timeslots.at_risk(connection) if templates else (),
        states=await scaling_states.by_pool(connection),
    )


def _work_of(slot: Timeslot, missing: int, pool: Pool) -> Workload:
    """Return the tasks of a timeslot that lack capacity, as a pending workload."""
    return Workload(
        id=slot.id,
        name=slot.name,
        pool=slot.pool,
        user_id=slot.user_id,
        project_id=slot.project_id,
        domain_id=slot.domain_id,
        runtime=min(pool.runtimes),
        request=slot.request,
        tasks=new_tasks(str(slot.id), missing),
        architecture=slot.architecture,
        region=slot.region,
        constraints=slot.constraints,
    )


def _joined(view: _View) -> list[tuple[Node, ScaleRequest]]:
    known = {(pool, template.name): template for pool, own in view.templates.items() for template in own}
    return expected(view.newcomers, view.requests, known)


def _after_match(request: ScaleRequest, at: datetime) -> ScaleRequest:
    """Return an open request as satisfied, expired or unchanged; a request that ended before stays as it is."""
    if request.status not in OPEN:
        return request
    status = ScaleRequestStatus.EXPIRED if request.coming else ScaleRequestStatus.SATISFIED
    if request.coming and at < request.expires_at:
        return request
    metrics.scale_requests.labels(status.lower()).inc()
    if request.coming:
        _log.warning(
            f"{len(request.coming)} of {len(request.wanted)} nodes of template {request.template} did not join "
            f"pool {request.pool} in time"
        )
    return replace(request, status=status, next_attempt_at=None)


def _refused(view: _View, pool: str, at: datetime) -> dict[str, str]:
    """Return the templates with an unexpired refusal, each with its error."""
    return {
        request.template: request.error or ""
        for request in view.requests_of(pool)
        if request.status is ScaleRequestStatus.REFUSED and request.expires_at > at
    }


def _stock(view: _View, template: NodeTemplate) -> Stock:
    requests = [r for r in view.requests_of(template.pool) if r.status in OPEN and r.template == template.name]
    existing = sum(node.template == template.name for node in view.nodes_of(template.pool))
    return Stock(template, existing, tuple(node for request in requests for node in request.coming))


def _requests(answer: ScaleUp, at: datetime) -> list[ScaleRequest]:
    metrics.scale_requests.labels("requested").inc(len(answer.additions))
    return [
        ScaleRequest(
            id=new_id(),
            pool=addition.template.pool,
            template=addition.template.name,
            status=ScaleRequestStatus.REQUESTED,
            wanted=addition.nodes,
            expires_at=late_at(at, addition.template),
            created_at=at,
            next_attempt_at=at,
            packing=answer.packing,
        )
        for addition in answer.additions
    ]


def _shown_packing(packing: PackingCost | None) -> str:
    if packing is None:
        return ""
    return f" (the packed nodes cost {packing.cost:,}; no packing costs less than {packing.bound:,})"


def _unmet(answer: ScaleUp, refused: Mapping[str, str]) -> tuple[Unmet, ...]:
    """Return the first workloads without requested nodes. While templates are refused, the refusal is the reason."""
    said = list(answer.unmet.items())[:_UNMET_SAID]
    if refused:
        errors = "; ".join(f"{template}: {error}" for template, error in sorted(refused.items()))
        return tuple(Unmet(workload, "nodes-refused", f"nodes are refused ({errors})") for workload, _ in said)
    return tuple(Unmet(workload, reason.code, reason.message) for workload, reason in said)


def _hopeless(unmet: Sequence[Unmet]) -> set[UUID]:
    """Return the workloads that no template fits. Idle nodes do not help them, so they do not block scale-down."""
    return {each.workload_id for each in unmet if each.code == NO_TEMPLATE}


def _scale_down(view: _View, pool: str, at: datetime, wanted: bool, changes: _Changes) -> tuple[Advised, ...]:
    """Return the advice on idle nodes of a pool. With the policy DRAIN, nodes to drain go into `changes` instead."""
    rules = view.pools[pool].policy.scaling
    own = {node.id: node for node in view.nodes_of(pool)}
    uses = [
        NodeUse(node.id, node.name, node.template, node.idle_since, node.booked, node.draining) for node in own.values()
    ]
    found = scale_down(
        uses,
        view.templates.get(pool, ()),
        now=at,
        # Nodes without a template count towards the minimum, and are never removed.
        rules=replace(rules, least=max(0, rules.least - view.others.get(pool, 0))),
        changed_at=_changed_at(view, pool),
        wanted=wanted,
    )
    if rules.shrink is Shrink.DRAIN:
        changes.drained += [own[each.node.id] for each in found if each.step is Step.DRAIN]
        found = tuple(each for each in found if each.step is not Step.DRAIN)
    return tuple(Advised(each.node.id, each.node.name, each.step.value, at) for each in found)


def _may_go_at(view: _View, pool: str) -> list[datetime]:
    """Return the times at which idle nodes of a pool may become eligible for scale-down."""
    rules, changed_at = view.pools[pool].policy.scaling, _changed_at(view, pool)
    idle_since = [node.idle_since for node in view.nodes_of(pool) if node.idle_since is not None]
    times = [since + timedelta(seconds=rules.idle_seconds) for since in idle_since]
    if idle_since and changed_at is not None:
        times.append(changed_at + timedelta(seconds=rules.shrink_cooldown_seconds))
    return times


def _since(state: ScalingState, before: ScalingState) -> ScalingState:
    """Return the state with the original time of advice that was already given."""
    known = {(each.node_id, each.step): each.since for each in before.advice}
    advice = (replace(each, since=known.get((each.node_id, each.step), each.since)) for each in state.advice)
    return replace(state, advice=tuple(advice))


def _requested_at(view: _View, pool: str) -> datetime | None:
    return max((request.created_at for request in view.requests_of(pool)), default=None)


def _changed_at(view: _View, pool: str) -> datetime | None:
    """Return the time of the last scale-up or scale-down of a pool."""
    own = view.nodes_of(pool)
    drained = (node.drained_at for node in own if node.drained_at is not None and node.drained_by == _ACTOR)
    times = [*(node.created_at for node in own), *drained]
    return max(times if (asked_at := _requested_at(view, pool)) is None else [*times, asked_at], default=None)
