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
    """The name of its workload; empty if the node does not know it either."""
    seen_at: datetime
    ends_at: datetime
    """It is ended automatically after this time."""
    confirmed_by: str | None
    """The admin who ended it; null while it runs."""


class QuarantineList(Answer):
    tasks: list[QuarantinedTask]


class QuarantineEnd(Request):
    """One task, those of a node, or all of them."""

    task_id: Annotated[UUID | None, Field(strict=False)] = None
    node: Name | None = None
    everything: bool = False

    @model_validator(mode="after")
    def _one(self) -> QuarantineEnd:
        if (self.task_id is not None) + (self.node is not None) + self.everything != 1:
            raise ValueError("name a task or a node, or set everything")
        return self
