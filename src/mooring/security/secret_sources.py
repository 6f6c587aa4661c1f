"""Sources of a secret besides the command line: a variable, a file that a variable names, a systemd credential."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mooring.model.errors import InvalidInput

_MAX_BYTES = 64 * 1024


def find(environment: Mapping[str, str], variable: str, credential: str) -> tuple[str, str] | None:
    """The value and where it came from: `VARIABLE`, the file `VARIABLE_FILE`, or $CREDENTIALS_DIRECTORY/credential."""
    file_variable = f"{variable}_FILE"
    if environment.get(variable) and environment.get(file_variable):
        raise InvalidInput(f"both {variable} and {file_variable} are set; keep one of them", code="invalid-setting")
    if environment.get(variable):
        return environment[variable], f"environment {variable}"
    if environment.get(file_variable):
        return _read(Path(environment[file_variable]), file_variable), f"file of {file_variable}"
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if folder and (path := Path(folder) / credential).is_file():
        return _read(path, f"systemd credential {credential}"), f"systemd credential {credential}"
    return None


def _read(path: Path, named_by: str) -> str:
    """The file's text without the line end that editors and `echo` leave."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {path} ({named_by}): {error}", code="invalid-setting") from None
    if not text or len(data) > _MAX_BYTES:
        problem = f"is larger than {_MAX_BYTES // 1024} KiB" if text else "is empty"
        raise InvalidInput(f"{path} ({named_by}) {problem}; it should hold the secret alone", code="invalid-setting")
    return text
