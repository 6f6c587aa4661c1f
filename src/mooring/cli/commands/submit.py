"""`mooring submit`: workloads from a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_table
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.wire.api import BatchAccepted, BatchItem, WorkloadRequest

app = typer.Typer()

_COLUMNS = (Column("NAME"), Column("RESULT"), Column("POOL"), Column("ID", wide=True), Column("REASON"))


@app.command(rich_help_panel=WORK)
def submit(
    file: Annotated[
        str,
        typer.Option("--file", "-f", metavar="FILE", help="JSON: a list of workloads, or one per line; - reads stdin."),
    ],
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Submit once, however often this is called with the same key.")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Submit many workloads from a file. Those that are refused are shown, the others are accepted all the same."""
    from mooring.cli.connection import connect
    from mooring.wire.fields import MAX_BATCH

    requests = _requests(_text(file))
    if key is not None and len(requests) > MAX_BATCH:
        raise InvalidInput(
            f"one key is for one request of at most {MAX_BATCH} workloads, and there are {len(requests)}"
        )
    with connect(server) as client:
        answers = [client.submit_batch(part, key=key) for part in _parts(requests, MAX_BATCH)]
    _show(requests, answers, output)
    if refused := sum(answer.refused for answer in answers):
        raise MooringError(f"{refused} of {len(requests)} workloads were refused", code="refused")


def _parts(requests: list[WorkloadRequest], size: int) -> Iterator[list[WorkloadRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def _show(requests: list[WorkloadRequest], answers: list[BatchAccepted], output: Format) -> None:
    if output is Format.JSON:
        show_json(answers)
    else:
        items = [item for answer in answers for item in answer.workloads]
        show_table(_COLUMNS, [_row(request, item) for request, item in zip(requests, items, strict=True)], output)


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
    """What the server would refuse as well is said before anything is sent, with the place in the file."""
    from pydantic import ValidationError

    from mooring.client.answers import invalid_request
    from mooring.wire.api import WorkloadRequest

    found = []
    for number, document in enumerate(_documents(text), start=1):
        try:
            found.append(WorkloadRequest.model_validate(document))
        except ValidationError as problem:
            raise InvalidInput(f"workload {number}: {invalid_request(problem).message}") from None
    if not found:
        raise InvalidInput("there is no workload in the file")
    return found


def _documents(text: str) -> list[Any]:
    """A list, one object, or several one after the other."""
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
