"""Ways into tasks: commands, ports and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from mooring.client.answers import invalid_request
from mooring.client.operation import Stream, Upload, Way, given, segment
from mooring.wire.channels import AttachOpening, ExecOpening, ForwardOpening


def run_command(
    task_id: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    terminal: bool = False,
    rows: int = 24,
    columns: int = 80,
) -> Way:
    words = list(command)
    opening = _asked(ExecOpening, command=words, container=container, terminal=terminal, rows=rows, columns=columns)
    return Way(_task_path(task_id, "exec"), opening)


def attach(task_id: str, *, container: str | None = None) -> Way:
    return Way(_task_path(task_id, "attach"), _asked(AttachOpening, container=container))


def forward(ref: str, port: int | None = None) -> Way:
    """To any task of a workload that is ready."""
    return Way(f"/api/workloads/{segment(ref)}/forward", _asked(ForwardOpening, port=port))


def forward_to_task(task_id: str, port: int | None = None) -> Way:
    return Way(_task_path(task_id, "forward"), _asked(ForwardOpening, port=port))


def fetch_files(task_id: str, path: str, *, container: str | None = None) -> Stream:
    return Stream(_task_path(task_id, "files"), given(path=path, container=container))


def store_files(task_id: str, path: str, *, container: str | None = None) -> Upload:
    return Upload(_task_path(task_id, "files"), given(path=path, container=container))


def _asked(kind: type[BaseModel], **fields: Any) -> BaseModel:
    try:
        return kind(**fields)
    except ValidationError as problem:
        raise invalid_request(problem) from None


def _task_path(task_id: str, what: str) -> str:
    return f"/api/tasks/{segment(task_id)}/{what}"
