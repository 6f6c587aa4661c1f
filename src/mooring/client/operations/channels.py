"""Access to running tasks: commands, ports and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from mooring.client.answers import invalid_request
from mooring.client.operations.operation import (
    ChannelRequest,
    Stream,
    Upload,
    given,
    segment,
)
from mooring.wire.agents.channels import AttachOpening, ExecOpening, ForwardOpening


def run_command(
    task_id: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    terminal: bool = False,
    rows: int = 24,
    columns: int = 80,
) -> ChannelRequest:
    words = list(command)
    opening = _asked(ExecOpening, command=words, container=container, terminal=terminal, rows=rows, columns=columns)
    return ChannelRequest(_task_path(task_id, "exec"), opening)


def attach(task_id: str, *, container: str | None = None, replay: bool = False, output: bool = True) -> ChannelRequest:
    opening = _asked(AttachOpening, container=container, replay=replay, output=output)
    return ChannelRequest(_task_path(task_id, "attach"), opening)


def forward(ref: str, port: int | None = None) -> ChannelRequest:
    """Connect to a port of any ready task of a workload."""
    return ChannelRequest(f"/api/workloads/{segment(ref)}/forward", _asked(ForwardOpening, port=port))


def forward_to_task(task_id: str, port: int | None = None) -> ChannelRequest:
    return ChannelRequest(_task_path(task_id, "forward"), _asked(ForwardOpening, port=port))


def fetch_files(task_id: str, path: str, *, container: str | None = None) -> Stream:
    """A file or folder of a task, as a tar archive."""
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
