"""Names that tenants give, and how their text is shown."""

from __future__ import annotations

import re

from mooring.model.errors import InvalidInput

NAME_PATTERN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
NAME = re.compile(NAME_PATTERN, re.ASCII)
_FORMULA = re.compile(r"[=@\t\r]|[-+](?![\d.]*$).*[=!|(]|[+](?![\d.]*$)", re.ASCII)
"""Programs for spreadsheets calculate such a cell, and some run programs for it. A dash, a number or a time is none."""


def check_name(name: str, *, what: str = "name") -> str:
    if not NAME.fullmatch(name):
        shown = name if len(name) <= 40 else name[:37] + "..."
        raise InvalidInput(
            f"{what} {shown!r} must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit",
            code="invalid-name",
            details={"pattern": NAME_PATTERN},
        )
    return name


def shown(text: str) -> str:
    """Return a tenant's text with control characters escaped, safe for a terminal or a log line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def without_formula(text: str) -> str:
    """Return a tenant's text as a cell of a CSV file that no spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text
