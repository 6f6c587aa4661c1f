"""Results of a task that `mooring run` fetches after its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.model.errors import InvalidInput, MooringError
from mooring.model.lifecycle import WorkloadStatus, is_workload_end

if TYPE_CHECKING:
    from mooring.client import Client


@dataclass(frozen=True, kw_only=True)
class DownloadOptions:
    download: Annotated[
        list[str] | None,
        typer.Option(
            "--download",
            metavar="PATH[:FOLDER]",
            help="File or folder of the task's working directory to fetch after the end, also of a command that "
            "failed; repeatable. FOLDER is on this machine (default: the same path below the current folder).",
        ),
    ] = None

    def check(self, *, waits: bool) -> None:
        """Raise InvalidInput for downloads that could not happen."""
        if self.download and not waits:
            raise InvalidInput("--download needs a command that `mooring run` waits for; use `mooring cp` afterwards")
        for each in self.download or ():
            path = PurePosixPath(each.partition(":")[0])
            if path.is_absolute() or ".." in path.parts or not each.partition(":")[0]:
                raise InvalidInput(f"--download {each}: give a path in the task's working directory, without ..")

    def fetch(self, client: Client, workload: str) -> bool:
        """Fetch the results of the first task; return whether all could be fetched."""
        from mooring.cli.interaction.task_files import first_task, unpack

        if not self.download:
            return True
        complete = True
        detail = client.workload(workload)
        if not is_workload_end(WorkloadStatus(detail.status)):
            say(f"{detail.name} has not ended; fetch its files with `mooring cp` later")
            return True
        task = first_task(detail, None)
        for each in self.download:
            path, _, folder = each.partition(":")
            target = Path(folder) if folder else Path(path).parent
            try:
                target.mkdir(parents=True, exist_ok=True)
                unpack(client.fetch_files(str(task.id), path), path, str(target))
            except (MooringError, OSError) as problem:
                reason = problem.message if isinstance(problem, MooringError) else str(problem)
                say(f"error: {path} was not downloaded: {reason}")
                complete = False
        return complete
