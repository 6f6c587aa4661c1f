"""`mooring db`: the database of a server, while none runs or an old one does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.commands.serve import ConfigOption, DatabaseOption, DataOption
from mooring.cli.exits import ExitCode
from mooring.cli.options import SERVER
from mooring.cli.output import show_line
from mooring.cli.words import plural
from mooring.model.errors import InvalidInput

app = typer.Typer()
db_app = typer.Typer(help="The database of a server.", no_args_is_help=True)
app.add_typer(db_app, name="db", rich_help_panel=SERVER)

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Such as sqlite:///mooring.db or postgresql://…")]


@db_app.command()
def check(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Say whether the tables are those of this version; exits with 1 if they are not."""
    import asyncio

    from mooring import maintenance

    found = asyncio.run(maintenance.check(_url(data, database, config)))
    show_line(f"schema  {found.found or 'none yet'}, this version has {found.wanted}")
    if not found.known:
        show_line("hint: a newer Mooring upgraded it; install that version, or restore a backup from before")
    elif not found.current:
        show_line("hint: `mooring db upgrade` brings it to this version")
    if not found.current:
        raise typer.Exit(ExitCode.FAILURE)


@db_app.command()
def upgrade(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Bring the tables to this version."""
    import asyncio

    from mooring import maintenance

    before = asyncio.run(maintenance.upgrade(_url(data, database, config)))
    show_line(
        f"schema {before.wanted} was there already"
        if before.current
        else f"upgraded from {before.found or 'nothing'} to {before.wanted}"
    )


@db_app.command()
def copy(source: UrlArgument, target: UrlArgument) -> None:
    """Move everything into an empty database, such as from one machine's SQLite file to PostgreSQL."""
    import asyncio

    from mooring import maintenance

    copied = asyncio.run(maintenance.copy(_with_driver(source), _with_driver(target)))
    rows = plural(sum(copied.values()), "row")
    show_line(f"copied {rows} of {plural(len(copied), 'table')}; the audit found nothing")


@db_app.command()
def backup(
    to: Annotated[Path, typer.Argument(metavar="FILE", help="The copy; it must not exist yet.")],
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Copy a SQLite database as it is now, while its server goes on."""
    from mooring import maintenance

    maintenance.back_up(_url(data, database, config), to)
    show_line(f"saved to {to}")


@db_app.command()
def restore(
    copy: Annotated[Path, typer.Argument(metavar="FILE", help="What `mooring db backup` saved.")],
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Put a backup in the place of a SQLite database whose server is stopped; what was there is kept beside it."""
    import asyncio

    from mooring import maintenance
    from mooring.settings import load

    folder = load({"data": data, "database": database}, config).settings.data
    aside = asyncio.run(maintenance.restore(_url(data, database, config), folder, copy))
    show_line(f"restored from {copy}" + (f"; what was there is kept as {aside}" if aside else ""))


@db_app.command()
def restored(data: DataOption = None, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Say that a PostgreSQL was restored, before its servers start: no node is believed before its agent speaks."""
    import asyncio

    from mooring import maintenance

    asyncio.run(maintenance.restored(_url(data, database, config)))
    show_line("nodes are suspect until their agents come back; what they run unknown to the database is quarantined")


@db_app.command()
def reseal(
    new_key: Annotated[bool, typer.Option("--new-key", help="Make a new key first, in the data folder.")] = False,
    data: DataOption = None,
    database: DatabaseOption = None,
    config: ConfigOption = None,
) -> None:
    """Seal all secrets with the first of the sealing keys, while servers go on; exits with 1 if some did not open."""
    import asyncio

    from mooring import maintenance, sealing
    from mooring.settings import load

    settings = load({"data": data, "database": database}, config).settings
    if new_key:
        if settings.sealing_keys is None or settings.sealing_keys_file is not None:
            raise InvalidInput(f"put the new key first into the file of {sealing.SETTING}, the same on every server")
        show_line(f"new key {sealing.add_key(settings.sealing_keys)}")
    keys = sealing.Sealing(settings.sealing_keys)
    done = asyncio.run(maintenance.reseal(_with_driver(settings.database_url), keys))
    show_line(f"sealed {plural(done.rows, 'row')} with the key {keys.key_ids[0]}")
    for key_id, number in done.left.items():
        why = "it does not open them" if key_id in keys.key_ids else "it is missing"
        show_line(f"{plural(number, 'row')} still with the key {key_id}: {why}")
    if done.left:
        raise typer.Exit(ExitCode.FAILURE)
    show_line("no row needs another key any more")


def _url(data: Path | None, database: str | None, config: Path | None) -> str:
    from mooring.settings import load

    return _with_driver(load({"data": data, "database": database}, config).settings.database_url)


def _with_driver(url: str) -> str:
    return url.replace("sqlite:///", "sqlite+aiosqlite:///", 1) if url.startswith("sqlite:///") else url
