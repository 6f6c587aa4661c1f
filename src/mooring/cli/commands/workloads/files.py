"""`mooring apply`, `diff`, `delete` and `schema`: workloads as files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode, report, say
from mooring.cli.options import WORK, ServerOption, YesOption
from mooring.cli.output import Styled, show_line
from mooring.model.errors import MooringError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mooring.client import Client
    from mooring.client.applying import Applied
    from mooring.client.files import Document

app = typer.Typer()

FileOption = Annotated[
    str,
    typer.Option(
        "--file", "-f", metavar="FILE", help="YAML or JSON; a folder for all files in it; - reads standard input."
    ),
]


@app.command(rich_help_panel=WORK)
def apply(
    file: FileOption,
    again: Annotated[bool, typer.Option("--again", help="Make sessions and labs anew that have ended.")] = False,
    server: ServerOption = None,
) -> None:
    """Make the workloads in a file what the file says: create what is missing, change what differs."""
    from mooring.cli.connection import connect
    from mooring.client import applying
    from mooring.client.files import read_documents

    documents = read_documents(file)
    with connect(server) as client:

        def make(document: Document) -> ExitCode:
            return _tell(client, document, applying.apply(client, document, again=again))

        worst = _each(documents, make)
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def diff(file: FileOption, server: ServerOption = None) -> None:
    """Show what `mooring apply` would change; exit with 1 if anything differs."""
    from mooring.cli.connection import connect
    from mooring.client.files import read_documents

    documents = read_documents(file)
    with connect(server) as client:
        worst = _each(documents, lambda document: _show_difference(client, document))
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def delete(file: FileOption, yes: YesOption = False, server: ServerOption = None) -> None:
    """Stop the workloads in a file and take them off the list."""
    from mooring.cli.commands.workloads import confirm
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
    """Print the JSON Schema of files, for editors: `mooring schema > mooring.schema.json`."""
    from mooring.wire.manifest_schema import schema as made

    print(json.dumps(made(), indent=2))


def _each(documents: list[Document], act: Callable[[Document], ExitCode]) -> ExitCode:
    """One after the other; one that is refused does not stop the others."""
    worst = ExitCode.OK
    for document in documents:
        try:
            worst = max(worst, act(document))
        except Unavailable:
            raise
        except MooringError as error:
            say(f"{document.place}:")
            worst = max(worst, report(error))
    return worst


def _tell(client: Client, document: Document, applied: Applied) -> ExitCode:
    if applied.timeslot is not None:
        from mooring.cli.booking_words import tell_answer
        from mooring.cli.commands.bookings import decided

        [answer] = decided(client, [applied.timeslot])
        if answer.status == "REFUSED":
            say(f"{document.place}:")
        return tell_answer(answer, start="start: {}", count="replicas: {}")
    ended = "" if applied.status is None else f" ({applied.status.lower()}); --again makes it anew"
    _show(document, f"{applied.result.value}{ended}")
    return ExitCode.OK


def _show_difference(client: Client, document: Document) -> ExitCode:
    from mooring.client.applying import Standing, compare
    from mooring.wire.manifests import workload_request

    found = compare(client, document)
    manifest = document.manifest
    if found.standing is Standing.MISSING:
        if manifest.kind != "lab":
            # What apply would be refused with; a lab's room is not that of other work, and only booking it tells.
            client.dry_run(workload_request(manifest))
        show_line(Styled(f"+ {manifest.kind} {manifest.name}", "green"))
        return ExitCode.FAILURE
    if found.standing is not Standing.DIFFERENT:
        return ExitCode.OK
    show_line(Styled(f"~ {manifest.kind} {manifest.name}", "yellow"))
    for difference in found.differences:
        present, wanted = (value or "nothing" for value in (difference.present, difference.wanted))
        show_line(f"    {difference.field}: ", Styled(present, "red"), " -> ", Styled(wanted, "green"))
    return ExitCode.FAILURE


def _show(document: Document, words: str) -> None:
    show_line(f"{document.manifest.kind} {document.manifest.name}: {words}")
