"""`mooring simulate`: workloads replayed through the scheduler with a virtual clock."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import SERVER, ServerOption
from mooring.cli.rendering.output import TABLE, Format, Listing, show_document
from mooring.cli.rendering.progress import Progress, ProgressBar
from mooring.model.errors import InvalidInput
from mooring.model.policy.pools import BackfillOrder, Expectation, HeadOfLine

if TYPE_CHECKING:
    from mooring.simulation.inputs.scenario_files.schema import ScenarioFile
    from mooring.simulation.scenario import Scenario

app = App()


@app.command(rich_help_panel=SERVER)
@with_groups
def simulate(
    scenarios: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCENARIO]...", help="Scenario file (YAML); with --compare, at least two.", show_default=False
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Job log instead of a scenario: SWF, `sacct --parsable2`, openb, PAI, Philly, or Mooring's "
            "accounting; also .gz.",
        ),
    ] = None,
    cpu: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1_000_000, help="With --trace: cores of each node.")
    ] = None,
    nodes: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="With --cpu: number of nodes (default 1).")
    ] = 1,
    cluster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --trace: CSV file of nodes, with a column per slot.")
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="With --trace: profile that chooses nodes (default balanced).")
    ] = "balanced",
    sequencer: Annotated[
        str, typer.Option(metavar="NAME", help="With --trace: order within a priority (default fifo).")
    ] = "fifo",
    head_of_line: Annotated[
        HeadOfLine,
        typer.Option(help="With --trace: effect of unschedulable work on the work behind it (default backfill)."),
    ] = HeadOfLine.BACKFILL,
    backfill_order: Annotated[
        BackfillOrder, typer.Option(help="With --trace: order in which work is backfilled (default queue).")
    ] = BackfillOrder.QUEUE,
    backfill_depth: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=1 << 30, help="With --trace: workloads with a planned start (default 1)."),
    ] = 1,
    expectation: Annotated[
        Expectation,
        typer.Option(help="With --trace: expected run times: limit, recent or predicted (default limit)."),
    ] = Expectation.LIMIT,
    from_server: Annotated[
        bool, typer.Option("--from-server", help="Use the nodes and pools of the server instead of the scenario's.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=1 << 31, help="Seed, instead of the scenario's.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Replay several scenarios over the same seeds, and show the differences.")
    ] = False,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="With --compare: number of seeds (default 10).")
    ] = 10,
    processes: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=256, help="With --compare: parallel processes (default one per CPU)."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write with a row per job: CSV, or Parquet for NAME.parquet."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="HTML file to write with charts; it loads nothing else.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of scenario files, for editors.")
    ] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Replay workloads through the scheduler with a virtual clock, and show waits, utilisation and fairness."""
    if schema:
        from mooring.simulation.inputs.scenario_files.schema import schema as scenario_schema

        show_document(scenario_schema(), Listing(output=output.output if output.is_document else Format.JSON))
        return
    if (trace is None) == (not scenarios):
        raise InvalidInput("give one of a scenario file and --trace")
    if compare:
        if len(scenarios or ()) < 2 or from_server or jobs or report:
            raise InvalidInput(
                "--compare takes two or more scenario files, and none of --from-server, --jobs, --report"
            )
        first = 1 if seed is None else seed
        _compare(scenarios or [], range(first, first + seeds), processes or len(os.sched_getaffinity(0)), output)
        return
    if len(scenarios or ()) > 1:
        raise InvalidInput("give one scenario file, or compare several with --compare")
    if trace is not None:
        policy: dict[str, Any] = {
            "profile": profile,
            "sequencer": sequencer,
            "head_of_line": head_of_line.value,
            "backfill": {
                "order": backfill_order.value,
                "depth": backfill_depth,
                "expectation": expectation.value,
            },
        }
        file = _file_of_trace(trace, policy, cpu=cpu, nodes=nodes, cluster=cluster, from_server=from_server)
        folder = Path()
    else:
        assert scenarios
        file, folder = _read(scenarios[0]), scenarios[0].parent
    scenario = _scenario(file, folder, seed=seed, from_server=from_server, server=server)
    title = (trace or (scenarios or [Path("simulation")])[0]).name
    _run(scenario, title, jobs, report, output)


def _run(scenario: Scenario, title: str, jobs: Path | None, report: Path | None, output: Listing) -> None:
    from mooring.cli.rendering.simulation import show_figures
    from mooring.simulation.engine import replay
    from mooring.simulation.metrics import figures_of
    from mooring.simulation.outputs.job_table import check_path, write_jobs

    if jobs is not None:
        check_path(jobs)
    with Progress(quiet=not sys.stderr.isatty()) as progress:
        result = replay(scenario, lambda part: progress.show(f"Simulating {len(scenario.jobs):,} jobs: {part:.0%}"))
    if jobs is not None:
        write_jobs(jobs, result.outcomes)
        say(f"{jobs}: {len(result.outcomes):,} jobs")
    figures = figures_of(result, scenario)
    if report is not None:
        from mooring.simulation.outputs.report.html import write_report
        from mooring.simulation.outputs.report.series import report_data

        write_report(report, report_data(result, scenario, title, figures))
        say(f"{report}: open it in a browser")
    if output.is_document:
        show_document(figures.as_dict(), output)
    else:
        show_figures(figures, output)


def _compare(paths: list[Path], seeds: range, processes: int, output: Listing) -> None:
    from mooring.cli.rendering.simulation import show_comparison
    from mooring.simulation.outputs.comparison import compare

    # A mistake in a file is reported before anything runs.
    for path in paths:
        _scenario(_read(path), path.parent, seed=seeds[0], from_server=False, server=None)
    with ProgressBar("Simulating") as bar:
        comparison = compare(paths, seeds, processes=processes, progress=bar.show)
    if output.is_document:
        show_document(comparison.as_dict(), output)
    else:
        show_comparison(comparison, output)


def _file_of_trace(
    trace: Path,
    policy: dict[str, Any],
    *,
    cpu: int | None,
    nodes: int,
    cluster: Path | None,
    from_server: bool,
) -> ScenarioFile:
    """Return the scenario that the options describe."""
    from mooring.simulation.inputs.scenario_files.schema import NodesPart, ScenarioFile, WorkloadPart
    from mooring.wire.cluster.pools import PoolChange

    if sum((cpu is not None, cluster is not None, from_server)) != 1:
        raise InvalidInput("--trace needs nodes: give one of --cpu, --cluster and --from-server")
    parts: list[NodesPart] = []
    if cpu is not None:
        parts = [NodesPart(count=nodes, resources={"cpu": cpu})]
    elif cluster is not None:
        parts = [NodesPart(file=str(cluster))]
    return ScenarioFile(
        cluster=parts,
        pools={"default": PoolChange.model_validate(policy)},
        workloads=[WorkloadPart(trace=str(trace), gangs=cpu is not None and nodes > 1)],
    )


def _read(path: Path) -> ScenarioFile:
    from mooring.simulation.inputs.scenario_files.loading import read_scenario

    return read_scenario(path)


def _scenario(file: ScenarioFile, folder: Path, *, seed: int | None, from_server: bool, server: str | None) -> Scenario:
    from mooring.simulation.inputs.scenario_files.loading import scenario_of

    if not from_server:
        return scenario_of(file, folder, seed=seed)
    from mooring.cli.connection import connect
    from mooring.simulation.inputs.nodes import nodes_of_server, pools_of_server

    with connect(server) as client:
        nodes, pools = client.nodes().nodes, client.pools().pools
    used = {node.pool for node in nodes}
    policies = pools_of_server([pool for pool in pools if pool.name in used])
    return scenario_of(file, folder, seed=seed, cluster=nodes_of_server(nodes), pools=policies)
