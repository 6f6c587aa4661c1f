"""Schemas of the quarantine: tasks that run on nodes and that the database does not know."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator

from mooring.wire.fields import Answer, Name, Request


class QuarantinedTask(Answer):
    node: str
    task_id: UUID
    workload_name: str
    """What its workload was called; empty where the node does not know it either."""
    seen_at: datetime
    ends_at: datetime
    """From then on it is ended without a word of anybody."""
    confirmed_by: str | None
    """Who let it be ended; null while it goes on."""


class QuarantineList(Answer):
    tasks: list[QuarantinedTask]


class QuarantineEnd(Request):
    """One task, those of a node, or all."""

    task_id: Annotated[UUID | None, Field(strict=False)] = None
    node: Name | None = None
    everything: bool = False

    @model_validator(mode="after")
    def _one(self) -> QuarantineEnd:
        if (self.task_id is not None) + (self.node is not None) + self.everything != 1:
            raise ValueError("name a task or a node, or say everything")
        return self
