"""The work of a run: what is asked for follows from a seed; what was accepted is remembered.

Every request is repeated until it is answered: a submission with the same idempotency key each time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from mooring.client import Client
from mooring.model.errors import Conflict, InvalidInput, MooringError, NotAllowed, NotFound
from mooring.model.tenancy.admission import AdmissionError
from mooring.wire.workloads.timeslots import TimeslotRequest
from mooring.wire.workloads.workloads import WorkloadRequest, WorkloadView
from tests.system.faults.plan import AGENTS, Fault, FaultKind

T = TypeVar("T")

BOUNDED = "bounded"
OWNERS = ("admin", "admin", BOUNDED)
"""The users, each with its own lane of steps. The last has a quota."""
BOUNDED_SESSIONS = 4
"""So many workloads of the bounded user may be on nodes at the same time."""
_GAP_SECONDS = {"admin": 1.5, BOUNDED: 3.0}
_BOOKING_GAP_SECONDS = 4.0
_FAR_SECONDS = 3600.0
"""Far after the run, so that nothing uses it: it stays reserved until the end of the run."""
_MAX_FAR = 3
_MAX_DEPLOYMENTS = 3
"""Capacity that a lane holds for long, so that some is always left for the rest."""
_AGAIN_SECONDS = 0.3
_REFUSALS = (InvalidInput, NotFound, Conflict, NotAllowed, AdmissionError)


class Action(StrEnum):
    SUBMIT = "submit"
    BATCH = "batch"
    SCALE = "scale"
    CANCEL = "cancel"
    BOOK = "book"
    GIVE_BACK = "give back"
    DRAIN = "drain"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Work:
    """One workload. `share` of a node's cores for each task; `seconds` None: it runs until it is stopped."""

    name: str
    tasks: int = 1
    share: float = 0.1
    seconds: float | None = None
    exit_code: int = 0
    retries: int = 0
    gang: bool = False
    apart: bool = False

    @property
    def kind(self) -> str:
        return "deployment" if self.seconds is None else "session"

    def request(self, starts: str, cores: float) -> WorkloadRequest:
        """`starts`: a folder where each task notes its start and its end in a file of its own."""
        note = f"{starts}/$MOORING_TASK_ID"
        script = f'echo "start $MOORING_WORKLOAD_ID $MOORING_INDEX $MOORING_ATTEMPT" >> {note}; '
        if self.seconds is None:
            script += "exec sleep 86400"
        else:
            script += f"sleep {self.seconds:g}; echo end >> {note}; exit {self.exit_code}"
        cpu = f"{max(1, int(cores * 1000 * self.share))}m"
        return WorkloadRequest.model_validate(
            {
                "name": self.name,
                "kind": self.kind,
                "replicas": self.tasks,
                "gang": self.gang,
                "max_per_node": 1 if self.apart else None,
                "retries": self.retries,
                "restart": "never",
                "stop_grace_seconds": 2,
                "containers": [
                    {"command": ["sh", "-c", script], "resources": {"cpu": cpu, "memory": "16Mi"}},
                ],
            }
        )


@dataclass(frozen=True, slots=True)
class Booking:
    """A timeslot that begins this long after its request. It is small, so that open-ended work runs beside it."""

    name: str
    after: float
    seconds: float
    share: float
    count: int

    @property
    def far(self) -> bool:
        return self.after >= _FAR_SECONDS

    def request(self, cores: float) -> TimeslotRequest:
        return TimeslotRequest.model_validate(
            {
                "name": self.name,
                "start": (datetime.now(UTC) + timedelta(seconds=self.after)).isoformat(),
                "duration": round(self.seconds),
                "lead": 0,
                "resources": {"cpu": f"{max(1, int(cores * 1000 * self.share))}m", "memory": "16Mi"},
                "count": self.count,
            }
        )


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    action: Action
    works: tuple[Work, ...] = ()
    booking: Booking | None = None
    target: str = ""
    """The workload or node that it is about, where that is not new."""
    replicas: int = 0


@dataclass(slots=True)
class Accepted:
    """An accepted workload."""

    work: Work
    id: UUID
    stop_requested: bool = False
    """It was stopped, or may have been."""
    replicas: int = 0
    """The number of tasks that was agreed on last."""
    late: set[int] = field(default_factory=set)
    """Numbers that were asked for more than once: a first request may be carried out after all others."""


@dataclass(slots=True)
class Booked:
    """A timeslot that was asked for and is to be decided on."""

    booking: Booking
    id: UUID
    given_back: bool = False
    """Or may have been."""


def make_load(seed: int, seconds: float) -> list[list[Step]]:
    """The steps of each of `OWNERS`."""
    return [
        list(_steps(owner, f"w{lane}", random.Random(f"{seed}/load/{lane}"), seconds))
        for lane, owner in enumerate(OWNERS, 1)
    ]


def make_bookings(seed: int, seconds: float) -> list[Step]:
    """Timeslots that come and go while things fail, and a few far ones that outlast the run."""
    chance = random.Random(f"{seed}/load/bookings")
    steps: list[Step] = []
    far: list[str] = []
    at, number = 0.0, 0
    while (at := at + chance.expovariate(1 / _BOOKING_GAP_SECONDS)) < seconds:
        if far and (len(far) >= _MAX_FAR or chance.random() < 0.15):
            steps.append(Step(at, Action.GIVE_BACK, target=far.pop(chance.randrange(len(far)))))
            continue
        number += 1
        name, share, count = f"slot-{number}", chance.choice([0.01, 0.02, 0.04]), chance.randint(1, AGENTS)
        if chance.random() < 0.4:
            after, length = _FAR_SECONDS * chance.uniform(1, 2), _FAR_SECONDS * chance.uniform(0.5, 2)
            far.append(name)
        else:
            after, length = chance.uniform(2, 15), chance.uniform(2, 8)
        steps.append(Step(at, Action.BOOK, booking=Booking(name, after, length, share, count)))
    return steps


def steps_of(plan: Iterable[Fault]) -> list[list[Step]]:
    """The faults that are requests: nodes that are filled and drained. They come from lanes of their own."""
    fills: list[Step] = []
    drains: list[Step] = []
    for number, fault in enumerate(plan):
        until = fault.at + fault.seconds
        if fault.kind is FaultKind.FILL:
            work = Work(f"fill-{number}", tasks=AGENTS, share=0.7, apart=True)
            fills += [Step(fault.at, Action.SUBMIT, (work,)), Step(until, Action.CANCEL, target=work.name)]
        elif fault.kind is FaultKind.DRAIN:
            drains += [Step(fault.at, Action.DRAIN, target=fault.target)]
            drains += [Step(until, Action.RESUME, target=fault.target)]
    return [fills, drains]


def _steps(owner: str, prefix: str, chance: random.Random, seconds: float) -> Iterator[Step]:
    deployments: list[str] = []
    sessions: list[str] = []
    at, number = 0.0, 0
    while (at := at + chance.expovariate(1 / _GAP_SECONDS[owner])) < seconds:
        roll = chance.random()
        if roll < 0.12 and deployments:
            yield Step(at, Action.SCALE, target=chance.choice(deployments), replicas=chance.randint(1, AGENTS))
        elif roll < 0.2 and sessions:
            yield Step(at, Action.CANCEL, target=sessions.pop(chance.randrange(len(sessions))))
        elif (roll < 0.25 and deployments) or len(deployments) > _MAX_DEPLOYMENTS:
            yield Step(at, Action.CANCEL, target=deployments.pop(chance.randrange(len(deployments))))
        else:
            several = roll > 0.88
            works = []
            for _ in range(chance.randint(2, 5) if several else 1):
                number += 1
                # Work that runs until it is stopped would use up a small quota indefinitely.
                works.append(_work(f"{prefix}-{number}", chance, lasting=owner != BOUNDED))
            sessions += [work.name for work in works if work.seconds is not None]
            deployments += [work.name for work in works if work.seconds is None]
            yield Step(at, Action.BATCH if several else Action.SUBMIT, tuple(works))


def _work(name: str, chance: random.Random, *, lasting: bool) -> Work:
    roll = chance.random()
    if roll < 0.2 and lasting:
        share = chance.choice([0.02, 0.05, 0.08])
        return Work(name, tasks=chance.randint(1, AGENTS), share=share, apart=chance.random() < 0.5)
    share, seconds = chance.choice([0.05, 0.1, 0.2, 0.3]), round(chance.uniform(0.2, 5.0), 1)
    if roll < 0.45:
        return Work(name, tasks=chance.randint(2, 3), share=share, seconds=seconds, gang=True)
    if roll < 0.6:
        return Work(name, share=share, seconds=seconds, exit_code=3, retries=chance.randint(0, 2))
    return Work(name, share=share, seconds=seconds)


class Load:
    """Carries out the steps of all lanes, each lane in a thread of its own."""

    def __init__(self, lanes: Sequence[tuple[Client, Sequence[Step]]], *, starts: str, cores: float, seed: int) -> None:
        self.accepted: dict[str, Accepted] = {}
        self.booked: dict[str, Booked] = {}
        self.refused: list[str] = []
        """Requests that were refused, and why."""
        self.unanswered: list[str] = []
        self.troubles: Counter[str] = Counter()
        """By code what was answered in place of an answer, and asked again."""
        self.answers = 0
        """Requests that were answered, by which a run sees that the load makes progress."""
        self._starts, self._cores, self._seed = starts, cores, seed
        self._give_up = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=lane, daemon=True) for lane in lanes]
        self._began = 0.0

    def start(self) -> None:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def waiting(self) -> list[str]:
        """The lanes that still wait for answers."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def give_up(self) -> None:
        """Mark requests without a response as `unanswered`."""
        self._give_up.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client: Client, steps: Sequence[Step]) -> None:
        for step in steps:
            time.sleep(max(0.0, self._began + step.at - time.monotonic()))
            self._take(client, step)

    def _take(self, client: Client, step: Step) -> None:
        match step.action:
            case Action.SUBMIT | Action.BATCH:
                self._submit(client, step)
            case Action.SCALE:
                self._scale(client, step)
            case Action.CANCEL:
                if (found := self.accepted.get(step.target)) is not None:
                    found.stop_requested = True
                    self._answer(f"cancel {step.target}", lambda: client.cancel(str(found.id)))
            case Action.BOOK:
                self._book(client, step)
            case Action.GIVE_BACK:
                if (slot := self.booked.get(step.target)) is not None:
                    slot.given_back = True
                    self._answer(f"give back {step.target}", lambda: client.cancel_timeslot(str(slot.id)))
            case Action.DRAIN:
                self._answer(f"drain {step.target}", lambda: client.drain_node(step.target))
            case Action.RESUME:
                self._answer(f"resume {step.target}", lambda: client.resume_node(step.target))

    def _submit(self, client: Client, step: Step) -> None:
        requests = [work.request(self._starts, self._cores) for work in step.works]
        names = " ".join(work.name for work in step.works)
        key = f"{self._seed}-{step.works[0].name}"
        if step.action is Action.SUBMIT:
            one = self._answer(f"submit {names}", lambda: client.submit(requests[0], key=key))
            ids = [one.id if one is not None else None]
        else:
            batch = self._answer(f"batch {names}", lambda: client.submit_batch(requests, key=key))
            ids = [item.id for item in batch.workloads] if batch is not None else []
        for work, id in zip(step.works, ids, strict=False):
            if id is None:
                self.refused.append(f"{work.name} of {names}")
            else:
                self.accepted[work.name] = Accepted(work, id, replicas=work.tasks)

    def _book(self, client: Client, step: Step) -> None:
        booking = step.booking
        assert booking is not None
        request, key = booking.request(self._cores), f"{self._seed}-{booking.name}"
        answer = self._answer(f"book {booking.name}", lambda: client.book(request, key=key))
        if answer is not None:
            self.booked[booking.name] = Booked(booking, answer.ids[0])

    def _scale(self, client: Client, step: Step) -> None:
        found = self.accepted.get(step.target)
        if found is None:
            return
        tries = 0

        def scale() -> WorkloadView:
            nonlocal tries
            tries += 1
            return client.scale(str(found.id), step.replicas)

        scaled = self._answer(f"scale {step.target}", scale)
        if scaled is not None:
            found.replicas = step.replicas
        if tries > 1 or scaled is None:
            found.late.add(step.replicas)

    def _answer(self, what: str, call: Callable[[], T]) -> T | None:
        """Return the response, or None if it was a rejection or did not arrive in time."""
        while not self._give_up.is_set():
            try:
                answer = call()
                self.answers += 1
                return answer
            except _REFUSALS as refusal:
                self.answers += 1
                self.refused.append(f"{what}: {refusal}")
                return None
            except MooringError as trouble:
                self.troubles[trouble.code] += 1
                self._give_up.wait(_AGAIN_SECONDS)
        self.unanswered.append(what)
        return None
