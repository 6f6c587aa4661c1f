"""The fields that requests share, with their bounds, and the two kinds of schemas: strict requests, lenient answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from mooring.model.names import NAME_PATTERN

MAX_BODY_BYTES = 256 * 1024
MAX_BATCH = 1000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_TASKS = 1000
MAX_ARRAY = 100_000
MAX_CONTAINERS = 16
MAX_VOLUMES = 32
MAX_LABELS = 64
MAX_ENVIRONMENT = 256
MAX_COMMAND = 1024
MAX_TEXT = 32 * 1024
INT32_MAX = 2**31 - 1

ENVIRONMENT_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
FILE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}$"
FOLDER_PATTERN = "^/"
IMAGE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$", max_length=63)]
# No NUL: neither a database's text nor a process's environment can hold it.
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")]
ShortText = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00]*$")]
Said = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""A sentence of an admin, which lists and logs show in one line."""
EnvironmentName = Annotated[str, StringConstraints(pattern=ENVIRONMENT_PATTERN)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]{0,125}[A-Za-z0-9])?$")]
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-A-Za-z0-9./]{0,61}[A-Za-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(min_length=1, max_length=64)] | Annotated[int, Field(ge=0, le=2**63 - 1)]
IdempotencyKey = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]
UNSHOWN = Field(repr=False)
"""Of secrets: a request or an answer that gets into a log or a traceback does not take them there."""
Password = Annotated[str, StringConstraints(min_length=8, max_length=256)]
Image = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=IMAGE_PATTERN)]


class Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


def said(request: Request, among: type[Request]) -> dict[str, Any]:
    """What a request says of these fields; what it leaves unsaid stays unsaid."""
    return {name: getattr(request, name) for name in request.model_fields_set & among.model_fields.keys()}
