"""`mooring db`: maintenance of a server's database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.commands.operations.serve import ConfigOption, DatabaseOption, DataOption
from mooring.cli.exits import ExitCode
from mooring.cli.help import App
from mooring.cli.input.options import SERVER
from mooring.cli.rendering.formatting import plural
from mooring.cli.rendering.output import show_line
from mooring.model.errors import InvalidInput

app = App()
db_app = App(help="Check, upgrade, copy, back up and restore the database of a server.", no_args_is_help=True)
app.add_typer(db_app, name="db", rich_help_panel=SERVER)

UrlArgument = Annotated[
    str, typer.Argument(metavar="URL", help="Database URL, such as sqlite:///mooring.db or postgresql://…")
]


@db_app.command()
def check(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Check the schema version, and a SQLite file for lost transactions. Exits with 1 on a problem."""
    import asyncio

    from mooring.server import maintenance

    found = asyncio.run(maintenance.check(_url(data, database, config)))
    show_line(f"schema  {found.found or 'none yet'}, this version has {found.wanted}")
    if found.unreleased:
        show_line("hint: a version that was never released made it and it cannot be upgraded; start with an empty one")
    elif not found.known:
        show_line(
            "hint: a newer version of Mooring upgraded the schema; install that version, or restore an older backup"
        )
    elif not found.current:
        show_line("hint: `mooring db upgrade` upgrades the schema to this version")
    if found.lost_transactions:
        show_line(f"log     {plural(found.lost_transactions, 'committed transaction')} missing: the log was damaged")
        show_line(
            "hint: restore a newer backup, or start the server, which records the loss and marks all nodes suspect"
            " until their agents report their tasks; then run `mooring audit`"
        )
    if not found.current or found.lost_transactions:
        raise typer.Exit(ExitCode.FAILURE)


@db_app.command()
def upgrade(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Upgrade the schema to this version."""
    import asyncio

    from mooring.server import maintenance

    before = asyncio.run(maintenance.upgrade(_url(data, database, config)))
    show_line(
        f"the schema is already at {before.wanted}"
        if before.current
        else f"upgraded from {before.found or 'nothing'} to {before.wanted}"
    )


@db_app.command()
def copy(
    source: UrlArgument,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="URL of the empty target database (default: that of the settings)."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Copy all data into an empty database, for example from SQLite to PostgreSQL."""
    import asyncio

    from mooring.server import maintenance

    copied = asyncio.run(maintenance.copy(_with_driver(source), _url(None, target, config)))
    rows = plural(sum(copied.values()), "row")
    show_line(f"copied {rows} of {plural(len(copied), 'table')}; the audit has no findings")


@db_app.command()
def backup(
    to: Annotated[Path, typer.Argument(metavar="FILE", help="File to create; it must not exist.")],
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Back up a SQLite database while its server runs."""
    from mooring.server import maintenance

    maintenance.back_up(_url(data, database, config), to)
    show_line(f"saved to {to}")


@db_app.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="FILE", help="File that `mooring db backup` created.")],
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Replace a SQLite database, whose server is stopped, with a backup. The old file is kept next to it."""
    import asyncio

    from mooring.server import maintenance
    from mooring.settings import load

    folder = load({"data": data, "database": database}, config).settings.data
    previous = asyncio.run(maintenance.restore(_url(data, database, config), folder, copy))
    show_line(f"restored from {copy}" + (f"; the previous database is kept as {previous}" if previous else ""))


@db_app.command()
def restored(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Declare that a PostgreSQL database was restored, before its servers start. All nodes become suspect."""
    import asyncio

    from mooring.server import maintenance

    asyncio.run(maintenance.restored(_url(data, database, config)))
    show_line(
        "all nodes are suspect until their agents reconnect; tasks that are not in the database will be quarantined"
    )


@db_app.command()
def reseal(
    new_key: Annotated[bool, typer.Option("--new-key", help="Create a new key first, in the data folder.")] = False,
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Encrypt all secrets with the first sealing key while servers run. Exits with 1 if some cannot be decrypted."""
    import asyncio

    from mooring.security import encryption
    from mooring.server import maintenance
    from mooring.settings import load

    settings = load({"data": data, "database": database}, config).settings
    if new_key:
        if settings.sealing_keys is None or settings.sealing_keys_file is not None:
            raise InvalidInput(
                f"add the new key as the first line of the file of {encryption.SETTING}, on every server"
            )
        show_line(f"new key {encryption.add_key(settings.sealing_keys)}")
    keys = encryption.SecretBox(settings.sealing_keys)
    done = asyncio.run(maintenance.reseal(_with_driver(settings.database_url), keys))
    show_line(f"encrypted {plural(done.rows, 'row')} with the key {keys.key_ids[0]}")
    for key_id, number in done.left.items():
        why = "it cannot decrypt them" if key_id in keys.key_ids else "it is missing"
        show_line(f"{plural(number, 'row')} still encrypted with the key {key_id}: {why}")
    if done.left:
        raise typer.Exit(ExitCode.FAILURE)
    show_line("no row needs any other key")


def _url(data: Path | None, database: str | None, config: Path | None) -> str:
    from mooring.settings import load

    return _with_driver(load({"data": data, "database": database}, config).settings.database_url)


def _with_driver(url: str) -> str:
    return url.replace("sqlite:///", "sqlite+aiosqlite:///", 1) if url.startswith("sqlite:///") else url
