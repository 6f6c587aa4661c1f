"""`mooring submit`: submit a job script, or workloads from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.commands.workloads.run import Restart
from mooring.cli.exits import say_if_simulated
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.job_scripts import JobScript, ScriptCommand
from mooring.cli.input.option_groups import ContainerOptions, PlacementOptions, ScheduleOptions, StartOptions
from mooring.cli.input.options import WORK, DryRunOption, InOption, ServerOption
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    Styled,
    show_document,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.wire.workloads.batches import BatchAccepted, BatchItem
    from mooring.wire.workloads.workloads import WorkloadRequest

app = App()

_COLUMNS = (Column("NAME"), Column("RESULT"), Column("POOL"), Column("ID", wide=True), Column("REASON", cut=True))


@app.command(cls=ScriptCommand, rich_help_panel=WORK)
@with_groups
def submit(
    context: typer.Context,
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT", help="Job script, with options in #MOORING lines, or - for standard input."),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Arguments of the script, with its own options.")
    ] = None,
    *,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="JSON file with a list of workloads or one per line, or - for standard input.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Idempotency key: repeated calls with the same key submit once.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    container: ContainerOptions,
    placement: PlacementOptions,
    in_: InOption = None,
    workdir: Annotated[str | None, typer.Option(metavar="FOLDER", help="Working directory on the node.")] = None,
    restart: Annotated[Restart | None, typer.Option(help="Restart policy after the script exits.")] = None,
    begin: StartOptions,
    schedule_options: ScheduleOptions,
    dry_run: DryRunOption = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Submit a job script and print its name, or submit many workloads from a file.

    The script's lines `#MOORING --cpu 4 --time 2h` before its first command are options; those of the command line,
    before or right after SCRIPT, win. With -f, rejected workloads are listed; the others are still accepted.
    """
    if (script is None) == (file is None):
        raise InvalidInput("give either a job script or -f FILE")
    if file is not None:
        _submit_file(file, key, output, server)
        return

    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.rendering.explanation import show_dry_run
    from mooring.wire.workloads.containers import ContainerRequest
    from mooring.wire.workloads.workloads import WorkloadRequest

    job: JobScript = context.obj
    words = [job.name, *(arguments or [])]
    request = build(
        WorkloadRequest,
        name=checked_name(name),
        kind="session",
        booking=in_,
        containers=[build(ContainerRequest, **container.fields(words), script=job.content, working_folder=workdir)],
        volumes=container.volumes,
        restart=restart.value if restart else None,
        **placement.fields(),
        **begin.fields(),
        **schedule_options.fields(),
    )
    with connect(server) as client:
        if dry_run:
            raise typer.Exit(show_dry_run(client.dry_run(request), output.layout))
        accepted = client.submit(request, key=key)
    say_if_simulated(accepted.name, accepted.simulated, chosen=bool(request.pool or request.booking))
    if output.is_document:
        show_document(accepted, output)
    else:
        show_line(accepted.name)


def _submit_file(file: str, key: str | None, output: Listing, server: str | None) -> None:
    from mooring.cli.connection import connect
    from mooring.wire.fields import MAX_BATCH

    requests = _requests(_text(file))
    if key is not None and len(requests) > MAX_BATCH:
        raise InvalidInput(f"the file has {len(requests)} workloads; with --key it may have at most {MAX_BATCH}")
    with connect(server) as client:
        answers = [client.submit_batch(part, key=key) for part in _parts(requests, MAX_BATCH)]
    _show(requests, answers, output)
    pairs = zip(requests, _items(answers), strict=True)
    simulated = [item for asked, item in pairs if item.simulated and not (asked.pool or asked.booking)]
    if simulated:
        others = f" and {len(simulated) - 1} others" if len(simulated) > 1 else ""
        say_if_simulated(f"{simulated[0].name}{others}", True, chosen=False)
    if refused := sum(answer.refused for answer in answers):
        raise MooringError(f"{refused} of {len(requests)} workloads were rejected", code="refused")


def _parts(requests: list[WorkloadRequest], size: int) -> Iterator[list[WorkloadRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _show(requests: list[WorkloadRequest], answers: list[BatchAccepted], output: Listing) -> None:
    if output.is_document:
        show_document(answers, output)
    else:
        rows = [_row(request, item) for request, item in zip(requests, _items(answers), strict=True)]
        show_table(_COLUMNS, rows, output)


def _items(answers: list[BatchAccepted]) -> list[BatchItem]:
    return [item for answer in answers for item in answer.workloads]


def _row(request: WorkloadRequest, item: BatchItem) -> list[Cell]:
    name = item.name or request.name or ""
    if item.error is not None:
        return [name, Styled("refused", "red"), "", "", f"{item.error.code}: {item.error.message}"]
    return [name, Styled("accepted", "green"), item.pool or "", str(item.id), ""]


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None


def _requests(text: str) -> list[WorkloadRequest]:
    """Return the requests. Invalid ones are reported with their position before anything is sent."""
    from pydantic import ValidationError

    from mooring.client.answers import invalid_request
    from mooring.wire.workloads.workloads import WorkloadRequest

    found = []
    for number, document in enumerate(_documents(text), start=1):
        try:
            found.append(WorkloadRequest.model_validate(document))
        except ValidationError as problem:
            raise InvalidInput(f"workload {number}: {invalid_request(problem).message}") from None
    if not found:
        raise InvalidInput("the file has no workloads")
    return found


def _documents(text: str) -> list[Any]:
    """Return the objects of a list, of one object, or of several in a row."""
    import json

    decoder, found, at = json.JSONDecoder(), [], 0
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"the file is not JSON: {error.msg} in line {error.lineno}") from None
        found += document if isinstance(document, list) else [document]
    return found
