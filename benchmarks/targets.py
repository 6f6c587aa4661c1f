"""The targets for the whole service, and the table that compares them with the figures of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    work: str
    benchmark: str
    figure: str
    limit: float
    at_least: bool = True
    """The figure shall be at least `limit`, not at most."""
    unit: str = "/s"

    def reached(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def _latencies(database: str, name: str) -> tuple[Target, ...]:
    work = f"accepted to bound at 100 submissions/s, {name}"
    return (
        Target(f"{work}, median", "service", f"{database}_single_steady_accept_to_bound_p50_ms", 20, False, " ms"),
        Target(f"{work}, p99", "service", f"{database}_single_steady_accept_to_bound_p99_ms", 80, False, " ms"),
    )


def _rates(database: str, name: str, batches: float) -> tuple[Target, ...]:
    many = f"{database}_single_64_connections_running_per_second"
    return (
        Target(
            f"single submissions to RUNNING, 8 connections, {name}",
            "service",
            f"{database}_single_running_per_second",
            600,
        ),
        Target(f"single submissions to RUNNING, 64 connections, {name}", "service", many, 1_200),
        Target(f"batches to RUNNING, {name}", "service", f"{database}_batch_running_per_second", batches),
    )


TARGETS = (
    *_rates("sqlite", "SQLite", 5_000),
    *_latencies("sqlite", "SQLite"),
    *_rates("postgresql", "PostgreSQL", 4_000),
    *_latencies("postgresql", "PostgreSQL"),
    Target("durable placements, SQLite", "binding", "sqlite_optimistic_placements_per_second", 25_000),
    Target("durable placements, PostgreSQL", "binding", "postgresql_optimistic_placements_per_second", 12_000),
    Target("preemptors with budgets", "placement", "preemption_budgets", 20_000),
    Target("preemptors with gangs as victims", "placement", "preemption_whole_gangs", 20_000),
    Target("preemptors with devices", "placement", "preemption_devices", 20_000),
    Target("preemptors with a hard spread", "placement", "preemption_topology", 2_000),
    Target("decisions, basic shapes", "placement", "basic", 1_300_000),
    Target("decisions, diverse shapes", "placement", "diverse", 200_000),
    Target("decisions, mixed", "placement", "mixed", 250_000),
    Target("objects to decisions", "placement", "objects_to_decisions", 400_000),
    Target("occupancy over five axes, 1 M ledger rows", "accounting", "occupancy_five_axes_ms", 1_000, False, " ms"),
    Target("backfill replay, one node of 100 cores", "backfill", "kth_easy_jobs_per_second", 5_000, unit=" jobs/s"),
    Target("backfill replay, gangs over 100 nodes", "backfill", "kth_gangs_jobs_per_second", 2_000, unit=" jobs/s"),
    Target("a week of 5,000 nodes, one core", "week", "week_processor_minutes", 10, False, " min"),
    Target("`mooring ps`", "command_line", "ps_ms", 200, False, " ms"),
    Target("`mooring run -- true`", "startup", "run_true_ms", 600, False, " ms"),
    Target("server ready, warm kernels", "startup", "server_ready_seconds", 1.5, False, " s"),
)


def table(results: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the rows of a Markdown table for the targets whose figures are among these results."""
    found = [(target, results.get(target.benchmark, {}).get(target.figure)) for target in TARGETS]
    rows = [_row(target, value) for target, value in found if value is not None]
    return ["| work | measured | target | command |", "|---|---|---|---|", *rows] if rows else []


def _row(target: Target, value: float) -> str:
    relation = "≥" if target.at_least else "≤"
    measured = f"{_shown(value)}{target.unit}" + ("" if target.reached(value) else " (missed)")
    limit = f"{relation} {_shown(target.limit)}{target.unit}"
    return f"| {target.work} | {measured} | {limit} | `make bench ARGS={target.benchmark}` |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
