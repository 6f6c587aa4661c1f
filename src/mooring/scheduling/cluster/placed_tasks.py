"""Placed tasks per row, as constraints of other tasks refer to them: labels, affinity terms, ports, licences.

Tasks that no constraint can tell apart form one class. The counts of a matcher are updated from its first use on, and
change with every task that is added or removed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.labels import Labels, Selector
from mooring.model.nodes.node import DEFAULT_PORTS
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    PreferredTasks,
    TaskTerm,
)
from mooring.scheduling.cluster.journal import Journal

Counts: TypeAlias = NDArray[np.int32]
Term: TypeAlias = TaskTerm | PreferredTasks
TermKind = Literal["affinity", "anti_affinity", "preferred_tasks"]
ANY_ADDRESS = "0.0.0.0"
_KINDS: tuple[TermKind, ...] = ("affinity", "anti_affinity", "preferred_tasks")


@dataclass(frozen=True, slots=True)
class Matcher:
    """Selects placed tasks: of these projects, or of those that `project_selector` matches, with these labels.

    `selector` None selects no task. Tasks that are about to end count unless `staying`.
    """

    selector: Selector | None
    projects: frozenset[str]
    project_selector: Selector | None = None
    staying: bool = False
    also: tuple[Matcher, ...] = ()
    """These must match as well."""

    def matches(self, project: str, project_labels: Labels, labels: Labels) -> bool:
        if self.selector is None or not all(other.matches(project, project_labels, labels) for other in self.also):
            return False
        here = project in self.projects or (
            self.project_selector is not None and self.project_selector.matches(project_labels)
        )
        return here and self.selector.matches(labels)


def matcher_of(term: TaskTerm, own_project: str) -> Matcher:
    """Return the matcher of a term of a task in `own_project`."""
    projects = term.projects
    if not projects and term.project_selector is None:
        projects = frozenset((own_project,))
    return Matcher(term.selector, projects, term.project_selector)


def matcher_of_all(terms: tuple[TaskTerm, ...], own_project: str) -> Matcher:
    """Return the matcher of the tasks that match every term."""
    first, *others = (matcher_of(term, own_project) for term in terms)
    return replace(first, also=tuple(others))


@dataclass(frozen=True, slots=True)
class _Class:
    """The properties of a placed task that constraints can refer to."""

    project: str
    labels: tuple[tuple[str, str], ...]
    affinity: tuple[TaskTerm, ...]
    anti_affinity: tuple[TaskTerm, ...]
    preferred_tasks: tuple[PreferredTasks, ...]
    leaving: bool


class PlacedTasks:
    """The placed tasks by class and row, with the counts in use."""

    def __init__(self, capacity: int) -> None:
        self.vocabulary = 0
        """Incremented when a term appears that no placed task had before, or the labels of a project change."""
        self.relabelled = 0
        """Incremented when the labels of a project change: matches may change without any task changing."""
        self.changes = Journal()
        """Every row on which a task was added or removed."""
        self.licences: Counts = np.zeros(capacity, dtype=np.int32)
        """The number of tasks with a licence per row."""
        self.range_used: Counts = np.zeros(capacity, dtype=np.int32)
        """The number of ports in use of the range of each row."""
        self._capacity = capacity
        self._project_labels: dict[str, Labels] = {}
        self._codes: dict[_Class, int] = {}
        self._classes: list[_Class] = []
        self._by_constraints: dict[tuple[Constraints, bool], int] = {}
        self._rows: list[Counter[int]] = []
        """By class, the number of tasks per row."""
        self._of_row: defaultdict[int, set[int]] = defaultdict(set)
        self._matchers: dict[Matcher, Counts] = {}
        self._matched: list[list[Counts]] = []
        """By class, the counts that include its tasks."""
        self._of_terms: dict[TermKind, dict[tuple[Term, str], Counts]] = {kind: {} for kind in _KINDS}
        self._ports: dict[int, Counter[HostPort]] = {}
        self._watched: dict[tuple[str, int], dict[HostPort, Counts]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._occupied: dict[int, frozenset[HostPort]] = {}
        """By row, the ports that other programs use; included in `_ports`."""

    def add(self, row: int, constraints: Constraints, count: int = 1, *, leaving: bool = False) -> None:
        """Count tasks with these constraints on a row; `leaving` ones do not count for topology spread."""
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

    def withhold(self, row: int, licences: int, ports: Iterable[HostPort], sign: int) -> None:
        """Withhold (1) or release (-1) licence sessions and ports that no task has yet."""
        self.licences[row] += sign * licences
        for port in ports:
            self._count_port(row, port, sign)
        self.changes.note((row,))

    def has(self, row: int, constraints: Constraints, *, leaving: bool = False) -> bool:
        """Return whether a task with these constraints, staying or `leaving`, is counted on a row."""
        return self._rows[self._code(constraints, leaving)].get(row, 0) > 0

    def affects_counts(self, constraints: Constraints, *, leaving: bool = False) -> bool:
        """Return whether a task with these constraints changes any count in use."""
        shows = bool(constraints.host_ports) or constraints.licence is not None
        return shows or bool(self._matched[self._code(constraints, leaving)])

    def rows_affecting_counts(self) -> NDArray[np.bool_]:
        """Return a mask that includes every row with a task that changes any count in use."""
        mask: NDArray[np.bool_] = self.licences > 0
        mask[list(self._ports)] = True
        for rows, matched in zip(self._rows, self._matched, strict=True):
            if matched and rows:
                mask[list(rows)] = True
        return mask

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

    def matches(self, matcher: Matcher, constraints: Constraints) -> bool:
        """Return whether a matcher selects tasks with these constraints."""
        project = constraints.project
        return matcher.matches(project, self.project_labels(project), dict(constraints.labels))

    def clear(self, row: int) -> None:
        """Forget every task on a row."""
        for code in tuple(self._of_row.pop(row, ())):
            self._take(row, code, self._rows[code].get(row, 0))
        self._of_row.pop(row, None)
        self.licences[row] = 0
        for port, number in self._ports_of_tasks(row).items():
            self._count_port(row, port, -number)

    def copy_row(self, row: int, other: PlacedTasks, other_row: int) -> None:
        """Copy the tasks on a row of another cluster to an empty row."""
        for theirs in other._of_row.get(other_row, ()):
            code, count = self._code_of_class(other._classes[theirs]), other._rows[theirs][other_row]
            self._rows[code][row] += count
            self._of_row[row].add(code)
            for counts in self._matched[code]:
                counts[row] += count
        self.licences[row] = other.licences[other_row]
        for port, number in other._ports_of_tasks(other_row).items():
            self._count_port(row, port, number)
        self.changes.note((row,))

    def copy_project_labels(self, other: PlacedTasks) -> None:
        for project, labels in other._project_labels.items():
            self.label_project(project, labels)

    def counts(self, matcher: Matcher) -> Counts:
        """Return the number of matching tasks per row. The array stays current; do not modify it."""
        counts = self._matchers.get(matcher)
        if counts is None:
            counts = self._matchers[matcher] = np.zeros(self._capacity, dtype=np.int32)
            for code, kind in enumerate(self._classes):
                if self._is_selected(matcher, kind):
                    self._matched[code].append(counts)
                    for row, number in self._rows[code].items():
                        counts[row] += number
        return counts

    def terms(self, kind: TermKind) -> Iterator[tuple[Term, str, Counts]]:
        """Yield the distinct terms of placed tasks, each with the project and the number of tasks per row.

        A term without any task left remains, with zeros.
        """
        for (term, project), counts in self._of_terms[kind].items():
            yield term, project, counts

    def counts_with_term(self, term: TaskTerm, project: str) -> Counts:
        """Return the number of tasks of a project with an anti-affinity term that `terms` listed, per row."""
        return self._of_terms["anti_affinity"][term, project]

    def ports(self, row: int) -> Mapping[HostPort, int]:
        """Return the host ports in use on a row."""
        return self._ports.get(row, {})

    def conflicts(self, port: HostPort) -> Counts:
        """Return the number of conflicting ports in use per row. The array stays current; do not modify it."""
        watched = self._watched.setdefault((port.protocol, port.port), {})
        counts = watched.get(port)
        if counts is None:
            counts = watched[port] = np.zeros(self._capacity, dtype=np.int32)
            for row, on_row in self._ports.items():
                counts[row] = sum(number for used, number in on_row.items() if excludes(used, port))
        return counts

    def set_port_range(self, row: int, first: int, last: int) -> None:
        """Set the port range of a row."""
        self._ranges[row] = (first, last)
        self.range_used[row] = len(self._numbers(row))

    def set_occupied_ports(self, row: int, ports: Iterable[HostPort]) -> None:
        """Set the ports of a row that other programs use. They stay when the row is cleared of tasks."""
        before, after = self._occupied.pop(row, frozenset()), frozenset(ports)
        if after:
            self._occupied[row] = after
        for port in before - after:
            self._count_port(row, port, -1)
        for port in after - before:
            self._count_port(row, port, 1)

    def lowest_free_ports(self, row: int, count: int, *, without: Set[int] = frozenset()) -> tuple[int, ...]:
        """Return the lowest free ports of the range; fewer than `count` if there are no more."""
        used = self._numbers(row) | without
        first, last = self._ranges.get(row, DEFAULT_PORTS)
        return tuple(islice((port for port in range(first, last + 1) if port not in used), count))

    def label_project(self, project: str, labels: Labels) -> None:
        """Set the labels of a project, by which terms select it."""
        if self._project_labels.get(project) == labels:
            return
        self._project_labels[project] = dict(labels)
        self._matchers.clear()
        for matched, kind in zip(self._matched, self._classes, strict=True):
            # Counts of terms do not depend on project labels: these arrays stay.
            carried = {id(counts) for counts in self._term_counts(kind)}
            matched[:] = [counts for counts in matched if id(counts) in carried]
        self.vocabulary += 1
        self.relabelled += 1

    def project_labels(self, project: str) -> Labels:
        return self._project_labels.get(project, {})

    def grow(self, capacity: int) -> None:
        """Extend all arrays to more rows."""
        self._capacity = capacity
        grown: dict[int, Counts] = {}

        def larger(counts: Counts) -> Counts:
            if id(counts) not in grown:
                grown[id(counts)] = np.concatenate((counts, np.zeros(capacity - len(counts), dtype=np.int32)))
            return grown[id(counts)]

        self._matchers = {matcher: larger(counts) for matcher, counts in self._matchers.items()}
        for kind in _KINDS:
            self._of_terms[kind] = {key: larger(counts) for key, counts in self._of_terms[kind].items()}
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
            code = self._code_of_class(kind)
            if len(self._by_constraints) >= 1 << 16:
                self._by_constraints.clear()
            self._by_constraints[constraints, leaving] = code
        return code

    def _code_of_class(self, kind: _Class) -> int:
        code = self._codes.get(kind)
        if code is None:
            code = self._codes[kind] = len(self._classes)
            self._classes.append(kind)
            self._rows.append(Counter())
            self._matched.append([counts for m, counts in self._matchers.items() if self._is_selected(m, kind)])
            self._matched[code].extend(self._term_counts(kind))
        return code

    def _term_counts(self, kind: _Class) -> Iterator[Counts]:
        for name in _KINDS:
            terms: tuple[Term, ...] = getattr(kind, name)
            for term in terms:
                counts = self._of_terms[name].get((term, kind.project))
                if counts is None:
                    counts = self._of_terms[name][term, kind.project] = np.zeros(self._capacity, dtype=np.int32)
                    self.vocabulary += 1
                yield counts

    def _is_selected(self, matcher: Matcher, kind: _Class) -> bool:
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

    def _ports_of_tasks(self, row: int) -> Counter[HostPort]:
        return self._ports.get(row, Counter()) - Counter(self._occupied.get(row, ()))

    def _numbers(self, row: int) -> set[int]:
        first, last = self._ranges.get(row, DEFAULT_PORTS)
        return {port.port for port in self._ports.get(row, ()) if first <= port.port <= last}


def excludes(used: HostPort, wanted: HostPort) -> bool:
    """Return whether a port in use conflicts with a wanted one: same number and protocol, overlapping addresses."""
    return (
        used.port == wanted.port
        and used.protocol == wanted.protocol
        and (used.address == wanted.address or ANY_ADDRESS in (used.address, wanted.address))
    )
