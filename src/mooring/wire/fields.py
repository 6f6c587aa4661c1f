"""Field types with their bounds, and the bases of schemas: strict requests and lenient responses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from mooring.model.names import NAME_PATTERN

MAX_BODY_BYTES = 256 * 1024
MAX_BATCH = 1000
MAX_BATCH_TASKS = 20_000
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_TASKS = 1000
MAX_ARRAY = 100_000
MAX_CONTAINERS = 16
MAX_VOLUMES = 32
MAX_LABELS = 64
MAX_ENVIRONMENT = 256
MAX_COMMAND = 1024
MAX_TEXT = 32 * 1024
MAX_SCRIPT = 64 * 1024
MAX_NAMES = 300
"""Maximum fields of an object in a request, known or not: reporting an error costs more than reading a field."""
INT32_MAX = 2**31 - 1

ENVIRONMENT_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
FILE_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}$"
FOLDER_PATTERN = "^/"
IMAGE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"

Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$", max_length=63)]
# No NUL: neither a database's text nor a process's environment can hold it.
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT, pattern=r"^[^\x00]*$")]
Script = Annotated[str, StringConstraints(min_length=1, max_length=MAX_SCRIPT, pattern=r"^[^\x00]*$")]
ShortText = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00]*$")]
Said = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
"""A reason given by an admin, which lists and logs show in one line."""
EnvironmentName = Annotated[str, StringConstraints(pattern=ENVIRONMENT_PATTERN)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]{0,125}[A-Za-z0-9])?$")]
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-A-Za-z0-9./]{0,61}[A-Za-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(min_length=1, max_length=64)] | Annotated[int, Field(ge=0, le=2**63 - 1)]
IdempotencyKey = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,128}$")]
UNSHOWN = Field(repr=False)
"""For secrets: keeps them out of logs and tracebacks that show a request or a response."""
TAKES_AWAY = BeforeValidator(lambda value: "" if value is None else value)
"""For an optional field of a change: null removes the value, as "" does; leaving it out changes nothing."""
Password = Annotated[str, StringConstraints(min_length=8, max_length=256)]
Image = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=IMAGE_PATTERN)]


class Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, written: Any) -> Any:
        """Refuse an object with too many fields before validating each of them."""
        if isinstance(written, dict):
            for part in (written, *written.values()):
                if isinstance(part, dict) and len(part) > MAX_NAMES:
                    raise PydanticCustomError(
                        "too_many_names", "an object has at most {most} names", {"most": MAX_NAMES, "found": len(part)}
                    )
        return written


class Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


def said(request: Request, among: type[Request]) -> dict[str, Any]:
    """Return the fields of a request that are set, among those of the other type."""
    return {name: getattr(request, name) for name in request.model_fields_set & among.model_fields.keys()}
