"""What runs where, as other tasks may ask about it: labels, (anti-)affinity terms and ports of placed tasks per row.

Tasks that are alike to every question are one class. A question that was asked once is kept: its counts move with every
task that comes or goes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.constraints import Constraints, HostPort, PreferredTasks, TaskTerm
from mooring.model.labels import Labels, Selector
from mooring.model.nodes import DEFAULT_PORTS
from mooring.scheduling.journal import Journal

Counts: TypeAlias = NDArray[np.int32]
Term: TypeAlias = TaskTerm | PreferredTasks
TermKind = Literal["affinity", "anti_affinity", "preferred_tasks"]
ANY_ADDRESS = "0.0.0.0"
_KINDS: tuple[TermKind, ...] = ("affinity", "anti_affinity", "preferred_tasks")


@dataclass(frozen=True, slots=True)
class Matcher:
    """Which placed tasks are meant: of these projects (or of those that `project_selector` matches), with these labels.

    `selector` None means no task. Tasks that are about to leave count unless `staying`.
    """

    selector: Selector | None
    projects: frozenset[str]
    project_selector: Selector | None = None
    staying: bool = False
    also: tuple[Matcher, ...] = ()
    """Those must match, too."""

    def matches(self, project: str, project_labels: Labels, labels: Labels) -> bool:
        if self.selector is None or not all(other.matches(project, project_labels, labels) for other in self.also):
            return False
        here = project in self.projects or (
            self.project_selector is not None and self.project_selector.matches(project_labels)
        )
        return here and self.selector.matches(labels)


def matcher_of(term: TaskTerm, own_project: str) -> Matcher:
    """The tasks that a term of a task in `own_project` means."""
    projects = term.projects
    if not projects and term.project_selector is None:
        projects = frozenset((own_project,))
    return Matcher(term.selector, projects, term.project_selector)


def matcher_of_all(terms: tuple[TaskTerm, ...], own_project: str) -> Matcher:
    """The tasks that every one of the terms means."""
    first, *others = (matcher_of(term, own_project) for term in terms)
    return replace(first, also=tuple(others))


@dataclass(frozen=True, slots=True)
class _Class:
    """What a placed task shows to others."""

    project: str
    labels: tuple[tuple[str, str], ...]
    affinity: tuple[TaskTerm, ...]
    anti_affinity: tuple[TaskTerm, ...]
    preferred_tasks: tuple[PreferredTasks, ...]
    leaving: bool


class Placed:
    """The placed tasks by class and row, with the counts that were asked for."""

    def __init__(self, capacity: int) -> None:
        self.vocabulary = 0
        """Raised when a term appears that no placed task carried before, or projects are labelled anew."""
        self.relabelled = 0
        """Raised when projects are labelled anew: who is meant may have changed without a task having moved."""
        self.changes = Journal()
        """Every row on which a task came or went."""
        self.licences: Counts = np.zeros(capacity, dtype=np.int32)
        """How many tasks with a licence each row has."""
        self.range_used: Counts = np.zeros(capacity, dtype=np.int32)
        """How many numbers of its range each row has given away."""
        self._capacity = capacity
        self._project_labels: dict[str, Labels] = {}
        self._codes: dict[_Class, int] = {}
        self._classes: list[_Class] = []
        self._by_constraints: dict[tuple[Constraints, bool], int] = {}
        self._rows: list[Counter[int]] = []
        """Per class how many tasks are on which row."""
        self._of_row: defaultdict[int, set[int]] = defaultdict(set)
        self._matchers: dict[Matcher, Counts] = {}
        self._matched: list[list[Counts]] = []
        """Per class the counts that its tasks are part of."""
        self._carried: dict[TermKind, dict[tuple[Term, str], Counts]] = {kind: {} for kind in _KINDS}
        self._ports: dict[int, Counter[HostPort]] = {}
        self._watched: dict[tuple[str, int], dict[HostPort, Counts]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}

    def add(self, row: int, constraints: Constraints, count: int = 1, *, leaving: bool = False) -> None:
        """Count tasks with these constraints on a row; `leaving` ones are no longer spread against."""
        code = self._code(constraints, leaving)
        self.changes.note((row,))
        rows = self._rows[code]
        rows[row] = rows.get(row, 0) + count
        self._of_row[row].add(code)
        for counts in self._matched[code]:
            counts[row] += count
        if constraints.licence is not None:
            self.licences[row] += count
        for port in constraints.host_ports:
            self._count_port(row, port, count)

    def remove(self, row: int, constraints: Constraints, count: int = 1, *, leaving: bool = False) -> None:
        """Undo an `add`."""
        code = self._code(constraints, leaving)
        self._take(row, code, count)
        if constraints.licence is not None:
            self.licences[row] -= count
        for port in constraints.host_ports:
            self._count_port(row, port, -count)

    def has(self, row: int, constraints: Constraints, *, leaving: bool = False) -> bool:
        """Whether a task with these constraints that stays (or is `leaving`) is counted on a row."""
        return self._rows[self._code(constraints, leaving)].get(row, 0) > 0

    def is_asked_about(self, constraints: Constraints, *, leaving: bool = False) -> bool:
        """Whether a task with these constraints makes a difference to any question that was asked so far."""
        shows = bool(constraints.host_ports) or constraints.licence is not None
        return shows or bool(self._matched[self._code(constraints, leaving)])

    def add_rows(self, rows: NDArray[np.intp], constraints: Constraints) -> None:
        """Count one task for every entry of `rows`, which may repeat."""
        if constraints.host_ports or constraints.licence is not None:
            for row, count in Counter(rows.tolist()).items():
                self.add(row, constraints, count)
            return
        code = self._code(constraints, False)
        each = rows.tolist()
        self.changes.note(each)
        self._rows[code].update(each)
        of_row = self._of_row
        for row in each:
            of_row[row].add(code)
        for counts in self._matched[code]:
            np.add.at(counts, rows, 1)

    def means(self, matcher: Matcher, constraints: Constraints) -> bool:
        """Whether a task with these constraints is one that the matcher means."""
        project = constraints.project
        return matcher.matches(project, self.project_labels(project), dict(constraints.labels))

    def clear(self, row: int) -> None:
        """Forget every task on a row."""
        for code in tuple(self._of_row.pop(row, ())):
            self._take(row, code, self._rows[code].get(row, 0))
        self._of_row.pop(row, None)
        self.licences[row] = 0
        for port, number in tuple(self._ports.get(row, Counter()).items()):
            self._count_port(row, port, -number)

    def counts(self, matcher: Matcher) -> Counts:
        """How many placed tasks match, per row. The array stays current; it must not be changed."""
        counts = self._matchers.get(matcher)
        if counts is None:
            counts = self._matchers[matcher] = np.zeros(self._capacity, dtype=np.int32)
            for code, kind in enumerate(self._classes):
                if self._is_meant(matcher, kind):
                    self._matched[code].append(counts)
                    for row, number in self._rows[code].items():
                        counts[row] += number
        return counts

    def owners(self, kind: TermKind) -> Iterator[tuple[Term, str, Counts]]:
        """The distinct terms that placed tasks carry, each with the carriers' project and how many are on each row.

        A term whose carriers have all left stays, with zeros.
        """
        for (term, project), counts in self._carried[kind].items():
            yield term, project, counts

    def carriers(self, term: TaskTerm, project: str) -> Counts:
        """How many tasks of the project carry an anti-affinity term, per row; of one that `owners` named."""
        return self._carried["anti_affinity"][term, project]

    def ports(self, row: int) -> Mapping[HostPort, int]:
        """The host ports in use on a row."""
        return self._ports.get(row, {})

    def conflicts(self, port: HostPort) -> Counts:
        """How many ports in use on each row exclude this one. The array stays current; it must not be changed."""
        watched = self._watched.setdefault((port.protocol, port.port), {})
        counts = watched.get(port)
        if counts is None:
            counts = watched[port] = np.zeros(self._capacity, dtype=np.int32)
            for row, on_row in self._ports.items():
                counts[row] = sum(number for used, number in on_row.items() if excludes(used, port))
        return counts

    def set_port_range(self, row: int, first: int, last: int) -> None:
        """The ports that tasks on this row may be given."""
        self._ranges[row] = (first, last)
        self.range_used[row] = len(self._numbers(row))

    def lowest_free_ports(self, row: int, count: int, *, without: Set[int] = frozenset()) -> tuple[int, ...]:
        """The ports to give to a task that wants so many; fewer come back if the range has no more."""
        used = self._numbers(row) | without
        first, last = self._ranges.get(row, DEFAULT_PORTS)
        return tuple(islice((port for port in range(first, last + 1) if port not in used), count))

    def label_project(self, project: str, labels: Labels) -> None:
        """The labels by which terms may select a project."""
        if self._project_labels.get(project) == labels:
            return
        self._project_labels[project] = dict(labels)
        self._matchers.clear()
        for matched, kind in zip(self._matched, self._classes, strict=True):
            # What carriers count for does not depend on project labels: those arrays stay.
            carried = {id(counts) for counts in self._carried_by(kind)}
            matched[:] = [counts for counts in matched if id(counts) in carried]
        self.vocabulary += 1
        self.relabelled += 1

    def project_labels(self, project: str) -> Labels:
        return self._project_labels.get(project, {})

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        grown: dict[int, Counts] = {}

        def larger(counts: Counts) -> Counts:
            if id(counts) not in grown:
                grown[id(counts)] = np.concatenate((counts, np.zeros(capacity - len(counts), dtype=np.int32)))
            return grown[id(counts)]

        self._matchers = {matcher: larger(counts) for matcher, counts in self._matchers.items()}
        for kind in _KINDS:
            self._carried[kind] = {key: larger(counts) for key, counts in self._carried[kind].items()}
        self._matched = [[larger(counts) for counts in matched] for matched in self._matched]
        for watched in self._watched.values():
            watched.update({port: larger(counts) for port, counts in watched.items()})
        self.range_used = larger(self.range_used)
        self.licences = larger(self.licences)

    def _code(self, constraints: Constraints, leaving: bool) -> int:
        code = self._by_constraints.get((constraints, leaving))
        if code is None:
            kind = _Class(
                constraints.project,
                constraints.labels,
                constraints.affinity,
                constraints.anti_affinity,
                constraints.preferred_tasks,
                leaving,
            )
            code = self._codes.get(kind)
            if code is None:
                code = self._codes[kind] = len(self._classes)
                self._classes.append(kind)
                self._rows.append(Counter())
                self._matched.append([counts for m, counts in self._matchers.items() if self._is_meant(m, kind)])
                self._matched[code].extend(self._carried_by(kind))
            if len(self._by_constraints) >= 1 << 16:
                self._by_constraints.clear()
            self._by_constraints[constraints, leaving] = code
        return code

    def _carried_by(self, kind: _Class) -> Iterator[Counts]:
        for name in _KINDS:
            terms: tuple[Term, ...] = getattr(kind, name)
            for term in terms:
                counts = self._carried[name].get((term, kind.project))
                if counts is None:
                    counts = self._carried[name][term, kind.project] = np.zeros(self._capacity, dtype=np.int32)
                    self.vocabulary += 1
                yield counts

    def _is_meant(self, matcher: Matcher, kind: _Class) -> bool:
        if matcher.staying and kind.leaving:
            return False
        return matcher.matches(kind.project, self.project_labels(kind.project), dict(kind.labels))

    def _take(self, row: int, code: int, count: int) -> None:
        rows = self._rows[code]
        left = rows.get(row, 0) - count
        if left < 0:
            raise ValueError(f"row {row} has fewer than {count} such tasks")
        if left:
            rows[row] = left
        else:
            rows.pop(row, None)
            self._of_row[row].discard(code)
        for counts in self._matched[code]:
            counts[row] -= count
        self.changes.note((row,))

    def _count_port(self, row: int, port: HostPort, count: int) -> None:
        on_row = self._ports.setdefault(row, Counter())
        on_row[port] += count
        if on_row[port] == 0:
            del on_row[port]
        for wanted, counts in self._watched.get((port.protocol, port.port), {}).items():
            if excludes(port, wanted):
                counts[row] += count
        self.range_used[row] = len(self._numbers(row))

    def _numbers(self, row: int) -> set[int]:
        first, last = self._ranges.get(row, DEFAULT_PORTS)
        return {port.port for port in self._ports.get(row, ()) if first <= port.port <= last}


def excludes(used: HostPort, wanted: HostPort) -> bool:
    """Whether a port in use keeps a task from having another one: same number and protocol, overlapping addresses."""
    return (
        used.port == wanted.port
        and used.protocol == wanted.protocol
        and (used.address == wanted.address or ANY_ADDRESS in (used.address, wanted.address))
    )
