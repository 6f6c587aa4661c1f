"""`mooring up`, `agent`, `config` and `keys`: the server and the agent of this machine."""

from __future__ import annotations

import gc
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    SERVER,
    NodeImageOption,
    NodeImageVersionOption,
    NodeLicenceOption,
)
from mooring.cli.rendering.formatting import instant
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Listing,
    show_line,
    show_table,
)
from mooring.server import interpreter

app = App()
keys_app = App(help="Manage signing keys of login tokens.", no_args_is_help=True)
app.add_typer(keys_app, name="keys", rich_help_panel=SERVER)

DataOption = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder that holds all state.")]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database (default: a SQLite file in the data folder). Pass a URL with a password in MOORING_DATABASE, "
        "MOORING_DATABASE_FILE or the settings file.",
    ),
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


class TaskNetwork(StrEnum):
    HOST = "host"
    NONE = "none"


class OnStop(StrEnum):
    LEAVE = "leave"
    STOP = "stop"


LogFormatOption = Annotated[LogFormat | None, typer.Option(help="Log format.")]
LogLevelOption = Annotated[LogLevel | None, typer.Option(help="Minimum log level.")]
TrustOption = Annotated[
    bool | None, typer.Option("--trust-tenants", help="Run processes of all tenants even if not started as root.")
]


@app.command(rich_help_panel=SERVER)
def up(
    data: DataOption = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on (default 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on (default 8000); 0 picks a free one.")
    ] = None,
    simulate: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Number of simulated nodes to add at the first start.")
    ] = None,
    database: DatabaseOption = None,
    demo: Annotated[
        bool | None,
        typer.Option("--demo", help="Allow simulated nodes on PostgreSQL or beyond loopback."),
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Allow listening beyond loopback without TLS.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate file (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key file (PEM).")] = None,
    role: Annotated[
        ServerRole | None, typer.Option(help="Parts to run: all, only the API, or only the scheduler (default all).")
    ] = None,
    on_stop: Annotated[OnStop | None, typer.Option(help="Treatment of running tasks when the server stops.")] = None,
    node_name: Annotated[
        str | None, typer.Option(metavar="NODE", help="Name of this node (default: the host name).")
    ] = None,
    agent: Annotated[
        bool | None, typer.Option("--agent/--no-agent", help="Run an agent on this machine (default).")
    ] = None,
    trust_tenants: TrustOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    config: ConfigOption = None,
) -> None:
    """Start a server: the API, the scheduler, and an agent for this machine."""
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
    # After the settings, so that errors in them are reported at once: the modules of a server take a moment to load.
    # Nothing that they create is garbage, so the collector is off meanwhile.
    gc.disable()
    from mooring.server.composition import up as start

    gc.enable()
    interpreter.tune()
    start(settings)


@app.command(rich_help_panel=SERVER)
def agent(
    server: Annotated[
        str,
        typer.Option(
            "--server", "-s", metavar="URL[,URL…]", help="URL of the server to join; repeatable for several servers."
        ),
    ],
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Join token of `mooring token create`, needed the first time. Prefer MOORING_JOIN_TOKEN, the file "
            "that MOORING_JOIN_TOKEN_FILE names, or the systemd credential join_token.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NODE", help="Name of this node (default: the host name).")
    ] = None,
    data: DataOption = None,
    ca_file: Annotated[Path | None, typer.Option(metavar="FILE", help="CA certificate of the server (PEM).")] = None,
    trust_tenants: Annotated[
        bool, typer.Option("--trust-tenants", help="Run processes of all tenants even if not started as root.")
    ] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="SLOT=COUNT[:MODEL[:MEMORY]]",
            help="Devices of this machine, such as gpu=4:A100:80Gi, instead of detected ones; repeatable.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="IP",
            help="Address at which other nodes reach this one (default: that of its connection to the server).",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS|none",
            envvar="MOORING_ENGINE",
            help="Container engine, such as unix:///run/podman/podman.sock (default: DOCKER_HOST or a usual socket).",
        ),
    ] = None,
    host_path: Annotated[
        list[Path] | None,
        typer.Option(
            "--host-path",
            metavar="FOLDER",
            help="Folder of this machine that tasks may mount if their pool also allows it; repeatable.",
        ),
    ] = None,
    task_network: Annotated[
        TaskNetwork,
        typer.Option(
            envvar="MOORING_TASK_NETWORK", help="Network of process tasks: the host's, or none, a private loopback."
        ),
    ] = TaskNetwork.HOST,
    licence: NodeLicenceOption = None,
    machine_image: NodeImageOption = None,
    machine_image_version: NodeImageVersionOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="Log format.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Minimum log level.")] = LogLevel.INFO,
) -> None:
    """Start an agent, which runs the tasks that a server places on this machine."""
    import asyncio
    import signal

    from mooring.agent.agent import Agent
    from mooring.agent.node.facts import declared_devices, node_name
    from mooring.agent.options import Options
    from mooring.cli.connection import secret_from_environment
    from mooring.client.address import canonical_address
    from mooring.client.local import default_data_folder
    from mooring.telemetry import logs

    logs.configure(form=log_format.value, level=log_level.value)
    options = Options(
        trust_tenants=trust_tenants,
        ca_file=ca_file,
        devices=declared_devices(device or ()),
        address=address,
        engine=engine,
        host_paths=tuple(path.absolute() for path in host_path or ()),
        task_network="none" if task_network is TaskNetwork.NONE else "host",
        licence=licence,
        machine_image=machine_image,
        machine_image_version=machine_image_version or "",
    )

    async def work() -> None:
        made = Agent(
            [canonical_address(each) for each in server.split(",")],
            (data or default_data_folder()) / "agent",
            name or node_name(),
            join_token=token or secret_from_environment("MOORING_JOIN_TOKEN", "join_token"),
            options=options,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, made.stop)
        await made.run()

    asyncio.run(work())


@app.command(rich_help_panel=SERVER)
@with_groups
def config(config: ConfigOption = None, data: DataOption = None, output: Listing = TABLE) -> None:
    """Show every setting of a server with its value and its source."""
    from mooring.settings import describe, load

    rows = describe(load({"data": data}, config))
    if output.is_document:
        import json

        fields = ("name", "value", "origin", "meaning")
        print(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=2))
        return
    show_table((Column("SETTING"), Column("VALUE"), Column("FROM"), Column("MEANING", cut=True)), rows, output)


@keys_app.callback()
def keys() -> None:
    """Manage the keys that sign login tokens. Credentials for programs are keypairs: `mooring keypair`."""


@keys_app.command()
def rotate(data: DataOption = None, config: ConfigOption = None) -> None:
    """Create a new signing key, used from the server's next start. Tokens of the old key stay valid."""
    from mooring.server.signing_keys import rotate_keys
    from mooring.settings import load

    rotate_keys(load({"data": data}, config).settings)
    show_line("a new key was created; the server signs with it after its next start")


@keys_app.command("list")
@with_groups
def list_keys(data: DataOption = None, config: ConfigOption = None, output: Listing = TABLE) -> None:
    """List the ids of the signing keys that servers of this database have used, newest first."""
    import asyncio

    from mooring.server.signing_keys import list_keys
    from mooring.settings import load

    known = asyncio.run(list_keys(load({"data": data}, config).settings))
    if output.is_document:
        import json

        fields = ({"id": key.id, "created_at": key.created_at, "revoked_at": key.revoked_at} for key in known)
        print(json.dumps(list(fields), indent=2, default=lambda at: at.isoformat()))
        return
    rows = [(key.id, instant(key.created_at), instant(key.revoked_at)) for key in known]
    show_table((Column("KEY"), Column("SINCE"), Column("REVOKED")), rows, output)


@keys_app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Id of the key, from `mooring keys list`.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Revoke even the current key, after which no user can log in until a restart."),
    ] = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke all tokens signed with a key, on all servers of the database. Keypairs stay valid."""
    import asyncio

    from mooring.server.signing_keys import revoke_key
    from mooring.settings import load

    asyncio.run(revoke_key(load({"data": data}, config).settings, key, force=force))
    show_line(f"{key} is revoked: its tokens are rejected from now on, and their open streams end within seconds")
