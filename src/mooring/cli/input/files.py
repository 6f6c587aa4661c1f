"""Files of the user in the task: options, the question about a local script, and the fields of a request."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from mooring.cli.exits import say
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.client.folder_scan import Scan
    from mooring.wire.workloads.uploads import FilesRequest
    from mooring.wire.workloads.workload_fields import CommonFields

    R = TypeVar("R", bound=CommonFields)

_CHOICES = "folders.json"


@dataclass(frozen=True, kw_only=True)
class FilesOptions:
    upload: Annotated[
        Path | None,
        typer.Option(
            "--upload",
            metavar="PATH",
            help="Upload a local folder or file; each task finds it in its working directory. Files that .gitignore "
            "or .mooringignore name are left out.",
        ),
    ] = None
    no_upload: Annotated[
        bool, typer.Option("--no-upload", help="Upload nothing, and do not ask about local scripts in the command.")
    ] = False
    here: Annotated[
        bool,
        typer.Option(
            "--here",
            help="Run in the current folder itself, without a copy: on this machine, and as the same OS user.",
        ),
    ] = False

    def attach(self, client: Client, request: R, command: list[str] | None) -> R:
        """Return the request with the files that the options or the remembered answer ask for."""
        if sum((self.upload is not None, self.no_upload, self.here)) > 1:
            raise InvalidInput("use only one of --upload, --no-upload and --here")
        files = self._files(client, request.project, command or [])
        return request if files is None else request.model_copy(update={"files": files})

    def _files(self, client: Client, project: str | None, command: list[str]) -> FilesRequest | None:
        if self.here:
            return _local_folder()
        folder = self.upload
        if folder is None and not self.no_upload and (script := local_script(command)):
            folder = _wanted_folder(script)
        return None if folder is None else _uploaded(client, folder, project)


def local_script(command: list[str]) -> str | None:
    """Return the first word of a command that names a file below the current folder."""
    here = Path.cwd()
    for number, word in enumerate(command):
        path = Path(word)
        # A program without a slash is searched in PATH, not here.
        if word.startswith("-") or path.is_absolute() or (number == 0 and "/" not in word):
            continue
        try:
            if path.is_file() and path.resolve().is_relative_to(here):
                return word
        except OSError:  # no name of a file, such as a long text
            continue
    return None


def _wanted_folder(script: str) -> Path | None:
    """Return the current folder if the user wants it uploaded: as asked once for this folder."""
    here = Path.cwd()
    choices = FolderChoices.of_user()
    chosen = choices.get(here)
    if chosen is None and here not in (Path.home(), Path("/")) and sys.stdin.isatty() and sys.stderr.isatty():
        chosen = _ask(script, here)
        choices.set(here, upload=chosen)
    if chosen is None:
        say(f"note: {script} is a file on this machine and is not sent; to send this folder, add --upload .")
    return here if chosen else None


def _ask(script: str, here: Path) -> bool:
    from mooring.client.folder_scan import scan

    found = scan(here)
    print(
        f"{script} is a file of this folder. Upload the folder ({_amount(found)}) with every job from here? "
        "The answer is remembered. [Y/n] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _uploaded(client: Client, path: Path, project: str | None) -> FilesRequest:
    from mooring.cli.rendering.progress import Progress
    from mooring.client.folder_scan import scan
    from mooring.client.uploading import Phase, upload
    from mooring.wire.workloads.uploads import FilesRequest

    found = scan(path)
    for name in found.left_out[:5]:
        say(f"note: {name} is left out: it is a link out of the folder, or no file")
    with Progress() as progress:
        terminal = sys.stderr.isatty()

        def report(phase: Phase, done: int, total: int) -> None:
            if terminal:
                progress.show(f"{phase} {_amount(found)}: {done * 100 // max(total, 1)} %")
            elif phase == "uploading":
                # Without a terminal a line per tenth.
                progress.show(f"uploading files: {done * 10 // max(total, 1) * 10} % of {_megabytes(total)}")

        answer = upload(client, found, project=project, report=report)
    return FilesRequest(upload=answer.id)


def _local_folder() -> FilesRequest:
    from mooring.wire.workloads.uploads import FilesRequest, LocalFolderRequest

    folder = Path.cwd()
    found = folder.stat()
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        raise InvalidInput("--here needs Linux; use --upload instead") from None
    return FilesRequest(
        local=LocalFolderRequest(
            folder=str(folder), uid=os.getuid(), boot_id=boot_id, device=found.st_dev, inode=found.st_ino
        )
    )


def _amount(found: Scan) -> str:
    count = len(found.files)
    return f"{count} file{'s' * (count != 1)}, {_megabytes(found.size)}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


class FolderChoices:
    """The user's answers by folder, in a file next to the stored logins."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_user(cls) -> FolderChoices:
        from mooring.client.credentials import CredentialStore

        return cls(CredentialStore.of_user().path.with_name(_CHOICES))

    def get(self, folder: Path) -> bool | None:
        chosen = self._read().get(str(folder))
        return chosen if isinstance(chosen, bool) else None

    def set(self, folder: Path, *, upload: bool) -> None:
        content = json.dumps({**self._read(), str(folder): upload}, indent=2) + "\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
                file.write(content)
            Path(file.name).replace(self._path)
        except OSError as problem:
            say(f"note: the answer cannot be remembered in {self._path}: {problem.strerror}")

    def _read(self) -> dict[str, object]:
        try:
            content = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
