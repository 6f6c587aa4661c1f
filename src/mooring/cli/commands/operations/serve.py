"""`mooring up`, `agent`, `config` and `keys`: what runs on this machine."""

from __future__ import annotations

import gc
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mooring import interpreter
from mooring.cli.options import (
    SERVER,
    NodeImageOption,
    NodeImageVersionOption,
    NodeLicenceOption,
    OutputOption,
)
from mooring.cli.output import Column, Format, show_line, show_table

app = typer.Typer()
keys_app = typer.Typer(help="The key that signs tokens.", no_args_is_help=True)
app.add_typer(keys_app, name="keys", rich_help_panel=SERVER)

DataOption = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The folder that keeps all state.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
DatabaseOption = Annotated[
    str | None, typer.Option(metavar="URL", help="The database; else a SQLite file in the data folder.")
]


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ServerRole(StrEnum):
    ALL = "all"
    API = "api"
    SCHEDULER = "scheduler"


class OnStop(StrEnum):
    LEAVE = "leave"
    STOP = "stop"


LogFormatOption = Annotated[LogFormat | None, typer.Option(help="How log lines are written.")]
LogLevelOption = Annotated[LogLevel | None, typer.Option(help="The least level that is logged.")]
TrustOption = Annotated[
    bool | None, typer.Option("--trust-tenants", help="Without root, run the processes of every tenant all the same.")
]


@app.command(rich_help_panel=SERVER)
def up(
    data: DataOption = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where to listen; else 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Else 8000; 0 picks a free one.")] = None,
    simulate: Annotated[int | None, typer.Option(metavar="N", min=0, help="Add N simulated nodes at first.")] = None,
    database: DatabaseOption = None,
    demo: Annotated[bool | None, typer.Option("--demo", help="Simulated nodes beyond one machine, too.")] = None,
    insecure: Annotated[bool | None, typer.Option("--insecure", help="Beyond loopback without TLS.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (PEM).")] = None,
    role: Annotated[ServerRole | None, typer.Option(help="Everything, or a part alone.")] = None,
    on_stop: Annotated[OnStop | None, typer.Option(help="What happens to running work when it stops.")] = None,
    node_name: Annotated[str | None, typer.Option(metavar="NODE", help="What this machine is called.")] = None,
    agent: Annotated[bool | None, typer.Option("--agent/--no-agent", help="Run work on this machine.")] = None,
    trust_tenants: TrustOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Start a server: API, scheduler, and an agent for this machine."""
    from mooring.settings import load

    flags = {
        "data": data,
        "host": host,
        "port": port,
        "simulate": simulate,
        "database": database,
        "demo": demo,
        "insecure": insecure,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "role": role.value if role else None,
        "on_stop": on_stop.value if on_stop else None,
        "node_name": node_name,
        "agent": agent,
        "trust_tenants": trust_tenants,
        "log_format": log_format.value if log_format else None,
        "log_level": log_level.value if log_level else None,
    }
    settings = load(flags, config).settings
    # After the settings: a wrong one is told at once, and what a server needs takes a moment to load. None of that is
    # ever garbage, so nobody looks for garbage meanwhile.
    gc.disable()
    from mooring.server import up as start

    gc.enable()
    interpreter.tune()
    start(settings)


@app.command(rich_help_panel=SERVER)
def agent(
    server: Annotated[
        str,
        typer.Option(
            "--server", "-s", metavar="URL[,URL…]", help="The server to join; where there are several, all of them."
        ),
    ],
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", envvar="MOORING_JOIN_TOKEN", help="From `mooring token create`; needed the first time."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NODE", help="What this machine is called.")] = None,
    data: DataOption = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The authority that signed the server's certificate.")
    ] = None,
    trust_tenants: Annotated[
        bool, typer.Option("--trust-tenants", help="Without root, run the processes of every tenant all the same.")
    ] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="SLOT=COUNT[:MODEL[:MEMORY]]",
            help="Devices of this machine, such as gpu=4:A100:80Gi, in place of those that are found. Again for more.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="IP", help="Where other nodes reach this one, if not as its connection to the server."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|none",
            envvar="MOORING_ENGINE",
            help="The container engine, such as unix:///run/podman/podman.sock; else DOCKER_HOST or the usual sockets.",
        ),
    ] = None,
    host_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--host-path",
            metavar="FOLDER",
            help="A folder of this machine that tasks may mount where their pool allows it, too. Again for more.",
        ),
    ] = None,
    licence: NodeLicenceOption = None,
    machine_image: NodeImageOption = None,
    machine_image_version: NodeImageVersionOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="How log lines are written.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="The least level that is logged.")] = LogLevel.INFO,
) -> None:
    """Run the tasks that a server places on this machine."""
    import asyncio
    import signal

    from mooring import logs
    from mooring.agent.agent import Agent
    from mooring.agent.facts import declared_devices, node_name
    from mooring.agent.options import Options
    from mooring.client.address import canonical_address
    from mooring.client.local import default_data_folder

    logs.configure(form=log_format.value, level=log_level.value)
    options = Options(
        trust_tenants=trust_tenants,
        ca_file=ca_file,
        devices=declared_devices(device or ()),
        address=address,
        engine=engine,
        host_paths=tuple(path.absolute() for path in host_path or ()),
        licence=licence,
        machine_image=machine_image,
        machine_image_version=machine_image_version or "",
    )

    async def work() -> None:
        made = Agent(
            [canonical_address(each) for each in server.split(",")],
            (data or default_data_folder()) / "agent",
            name or node_name(),
            join_token=token,
            options=options,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, made.stop)
        await made.run()

    asyncio.run(work())


@app.command(rich_help_panel=SERVER)
def config(config: ConfigOption = None, data: DataOption = None, output: OutputOption = Format.TABLE) -> None:
    """Show every setting of a server with its value and where that came from."""
    from mooring.settings import describe, load

    rows = describe(load({"data": data}, config))
    if output is Format.JSON:
        import json

        fields = ("name", "value", "origin", "meaning")
        print(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=2))
        return
    show_table((Column("SETTING"), Column("VALUE"), Column("FROM"), Column("MEANING")), rows, output)


@keys_app.callback()
def keys() -> None:
    """The key that signs tokens."""


@keys_app.command()
def rotate(data: DataOption = None, config: ConfigOption = None) -> None:
    """Sign with a new key from the server's next start on; tokens of the old one last until they expire."""
    from mooring.server import rotate_keys
    from mooring.settings import load

    rotate_keys(load({"data": data}, config).settings)
    show_line("there is a new key; the server signs with it from its next start on")
