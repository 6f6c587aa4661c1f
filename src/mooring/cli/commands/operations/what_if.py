"""`mooring what-if`: when work would start if the live cluster were different."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.output import TABLE, Listing, show_document
from mooring.model.calendar.durations import parse_duration
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.cluster.what_if import WhatIfRequest

app = App()

_SCOPES = ("keypair", "user", "project", "domain")


@app.command("what-if", rich_help_panel=CLUSTER)
@with_groups
def what_if(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORKLOAD]...", help="Workloads to show in any case.", show_default=False),
    ] = None,
    add_nodes: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="Add N empty nodes like --like (default 0).")
    ] = 0,
    like: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Node that the added nodes copy; needed for --add-nodes and --p95-wait."),
    ] = None,
    remove_nodes: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Nodes that accept no more work: names, or labels such as rack=r7."),
    ] = None,
    fail_nodes: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Nodes that are lost now: names, or labels such as rack=r7."),
    ] = None,
    cancel: Annotated[list[str] | None, typer.Option(metavar="WORKLOAD", help="Workload that ends now.")] = None,
    set_limit: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE/TENANT:SLOT=N", help="Limit of a tenant, such as project/vision:gpu=32."),
    ] = None,
    pool_option: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL:OPTION=VALUE", help="Option of a pool, such as default:backfill.order=shortest."),
    ] = None,
    p95_wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Find the number of added nodes for a 95th percentile of the waits of at most this: 10m.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="With --p95-wait: maximum nodes to add (default 64).")
    ] = 64,
    until: Annotated[str, typer.Option(metavar="TIME", help="Time to simulate (default 7d).")] = "7d",
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Include all workloads that you may see, not only your own.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Maximum workloads to show (default 20).")
    ] = 20,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Simulate a change of the live cluster, and show when pending work would start with and without it.

    Nothing changes. The server continues its present state with the production scheduler in a separate process.
    """
    from mooring.cli.connection import connect
    from mooring.cli.rendering.what_if import show_what_if

    request = _request(
        add_nodes=add_nodes,
        like=like,
        remove_nodes=remove_nodes,
        fail_nodes=fail_nodes,
        cancel=cancel or [],
        limits=set_limit or [],
        pool_options=pool_option or [],
        p95_wait=p95_wait,
        most=most,
        rest={
            "workloads": workloads or [],
            "everyone": everyone,
            "seconds": parse_duration(until),
            "limit": limit,
        },
    )
    with connect(server) as client:
        answer = client.what_if(request)
    if output.is_document:
        show_document(answer, output)
    else:
        show_what_if(answer, output)


def _request(
    *,
    add_nodes: int,
    like: str | None,
    remove_nodes: str | None,
    fail_nodes: str | None,
    cancel: list[str],
    limits: list[str],
    pool_options: list[str],
    p95_wait: str | None,
    most: int,
    rest: dict[str, Any],
) -> WhatIfRequest:
    from pydantic import ValidationError

    from mooring.wire.cluster.what_if import WhatIfRequest
    from mooring.wire.problems import refused

    if like is None and (add_nodes or p95_wait is not None):
        raise InvalidInput("--add-nodes and --p95-wait need --like NODE")
    if like is not None and not add_nodes and p95_wait is None:
        raise InvalidInput("--like needs --add-nodes or --p95-wait")
    fields: dict[str, Any] = {name: value for name, value in rest.items() if value}
    if add_nodes:
        fields["add_nodes"] = [{"like": like, "count": add_nodes}]
    if remove_nodes is not None:
        fields["remove_nodes"] = _nodes(remove_nodes)
    if fail_nodes is not None:
        fields["fail_nodes"] = _nodes(fail_nodes)
    if cancel:
        fields["cancel"] = cancel
    if limits:
        fields["limits"] = [_limit(each) for each in limits]
    if pool_options:
        fields["pools"] = _pools(pool_options)
    if p95_wait is not None:
        fields["search"] = {"like": like, "p95_wait_seconds": parse_duration(p95_wait), "most": most}
    try:
        return WhatIfRequest.model_validate(fields)
    except ValidationError as error:
        raise refused(error) from None


def _nodes(text: str) -> dict[str, Any]:
    """Return the choice of nodes: by labels if the text has an operator, otherwise by names."""
    if any(sign in text for sign in "=!"):
        return {"selector": text}
    return {"names": [name.strip() for name in text.split(",") if name.strip()]}


def _limit(text: str) -> dict[str, Any]:
    tenant, colon, amounts = text.rpartition(":")
    scope, slash, name = tenant.partition("/")
    pairs = [pair.partition("=") for pair in amounts.split(",")]
    if not colon or not slash or scope not in _SCOPES or not name or any(not equals for _, equals, _ in pairs):
        raise InvalidInput(f"--set-limit {text[:60]!r}: write SCOPE/TENANT:SLOT=N, such as project/vision:gpu=32")
    return {"scope": scope, "tenant": name, "limits": {slot: amount for slot, _, amount in pairs}}


def _pools(texts: list[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        pool, colon, given = text.partition(":")
        option, equals, value = given.partition("=")
        if not (pool and colon and option and equals):
            raise InvalidInput(f"--pool-option {text[:60]!r}: write POOL:OPTION=VALUE, such as default:profile=pack")
        fields = found.setdefault(pool, {})
        *outer, name = option.split(".")
        for part in outer:
            fields = fields.setdefault(part, {})
        fields[name] = _value(value)
    return found


def _value(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else text
