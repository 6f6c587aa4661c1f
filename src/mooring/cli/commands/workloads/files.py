"""`mooring apply`, `diff`, `delete` and `schema`: workloads as files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode, report, say, say_if_simulated
from mooring.cli.help import App
from mooring.cli.input.options import WORK, ServerOption, YesOption
from mooring.cli.rendering.output import Styled, show_line
from mooring.model.errors import MooringError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.client import Client
    from mooring.client.applying import Applied
    from mooring.client.files import Document

app = App()

FileOption = Annotated[
    str,
    typer.Option(
        "--file", "-f", metavar="FILE", help="YAML or JSON file, a folder for all files in it, or - for standard input."
    ),
]


@app.command(rich_help_panel=WORK)
def apply(
    file: FileOption,
    again: Annotated[bool, typer.Option("--again", help="Create sessions and labs again that have ended.")] = False,
    server: ServerOption = None,
) -> None:
    """Create the workloads of a file that are missing, and change those that differ."""
    from mooring.cli.connection import connect
    from mooring.client import applying
    from mooring.client.files import read_documents

    documents = read_documents(file)
    with connect(server) as client:

        def make(document: Document) -> ExitCode:
            return _show_applied(client, document, applying.apply(client, document, again=again))

        worst = _each(documents, make)
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def diff(file: FileOption, server: ServerOption = None) -> None:
    """Show the changes that `mooring apply` would make. Exits with 1 if there are any."""
    from mooring.cli.connection import connect
    from mooring.client.files import read_documents

    documents = read_documents(file)
    with connect(server) as client:
        worst = _each(documents, lambda document: _show_difference(client, document))
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def delete(file: FileOption, yes: YesOption = False, server: ServerOption = None) -> None:
    """Stop the workloads of a file and remove them from lists."""
    from mooring.cli.commands.workloads.workloads import confirm
    from mooring.cli.connection import connect
    from mooring.client import applying
    from mooring.client.files import read_documents

    documents = read_documents(file)
    if not yes:
        confirm([document.manifest.name for document in documents])
    with connect(server) as client:

        def end(document: Document) -> ExitCode:
            there = applying.delete(client, document)
            _show(document, "deleted" if there else "not there")
            return ExitCode.OK

        worst = _each(documents, end)
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def schema() -> None:
    """Print the JSON Schema of workload files, for editors: `mooring schema > mooring.schema.json`."""
    from mooring.wire.workloads.manifest_schema import schema as made

    print(json.dumps(made(), indent=2))


def _each(documents: list[Document], act: Callable[[Document], ExitCode]) -> ExitCode:
    """Process the documents one after the other; a rejected one does not stop the others."""
    worst = ExitCode.OK
    for document in documents:
        try:
            worst = max(worst, act(document))
        except Unavailable:
            raise
        except MooringError as error:
            say(f"{document.location}:")
            worst = max(worst, report(error))
    return worst


def _show_applied(client: Client, document: Document, applied: Applied) -> ExitCode:
    if applied.timeslot is not None:
        from mooring.cli.commands.cluster.bookings import decided
        from mooring.cli.rendering.bookings import show_decision

        [answer] = decided(client, [applied.timeslot])
        if answer.status == "REFUSED":
            say(f"{document.location}:")
        return show_decision(answer, start="start: {}", count="replicas: {}")
    ended = "" if applied.status is None else f" ({applied.status.lower()}); --again creates it again"
    _show(document, f"{applied.result.value}{ended}")
    from mooring.wire.workloads.manifests import workload_request

    asked = workload_request(document.manifest)
    say_if_simulated(asked.name or "", applied.simulated, chosen=bool(asked.pool or asked.booking))
    return ExitCode.OK


def _show_difference(client: Client, document: Document) -> ExitCode:
    from mooring.client.applying import State, compare
    from mooring.wire.workloads.manifests import workload_request

    found = compare(client, document)
    manifest = document.manifest
    if found.state is State.MISSING:
        if manifest.kind != "lab":
            # Report the error that `apply` would get. A lab is not checked, since only booking it finds its capacity.
            client.dry_run(workload_request(manifest))
        show_line(Styled(f"+ {manifest.kind} {manifest.name}", "green"))
        return ExitCode.FAILURE
    if found.state is not State.DIFFERENT:
        return ExitCode.OK
    show_line(Styled(f"~ {manifest.kind} {manifest.name}", "yellow"))
    for difference in found.differences:
        present, wanted = (value or "nothing" for value in (difference.present, difference.wanted))
        show_line(f"    {difference.field}: ", Styled(present, "red"), " -> ", Styled(wanted, "green"))
    return ExitCode.FAILURE


def _show(document: Document, text: str) -> None:
    show_line(f"{document.manifest.kind} {document.manifest.name}: {text}")
