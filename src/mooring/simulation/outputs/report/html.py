"""The report as one HTML file: a template, and the data as JSON."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from mooring.model.errors import InvalidInput


def render(data: dict[str, Any]) -> str:
    """Return the page. Names of jobs and tenants are untrusted: they travel as data, and the script sets text only."""
    template = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    # In a script element, only `<` could end the data or begin a comment.
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
    return template.replace("{{title}}", html.escape(data["title"])).replace("{{data}}", encoded)


def write_report(path: Path, data: dict[str, Any]) -> None:
    try:
        path.write_text(render(data), encoding="utf-8")
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}") from problem
