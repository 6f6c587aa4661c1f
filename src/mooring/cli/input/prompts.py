"""Questions on the terminal: confirmations, and passwords, which never come from the command line.

Other users can read a command line.
"""

from __future__ import annotations

import sys

import typer

from mooring.cli.exits import ExitCode
from mooring.model.errors import InvalidInput


def confirm(question: str) -> None:
    """Ask for confirmation; raise if the answer is no, or if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise InvalidInput("cannot ask for confirmation without a terminal; use --yes", code="not-confirmed")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.FAILURE)


def ask_password(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("cannot ask for a password without a terminal; use --password-stdin")
    answer: str = typer.prompt(prompt, hide_input=True, err=True)
    return answer


def ask_new_password(name: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("cannot ask for a password without a terminal; use --password-stdin")
    answer: str = typer.prompt(f"New password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return answer


def read_lines(count: int) -> list[str]:
    """Return the first lines of standard input, without line ends."""
    lines = [sys.stdin.readline() for _ in range(count)]
    if not all(lines):
        raise InvalidInput(f"standard input holds fewer than {count} lines" if count > 1 else "standard input is empty")
    return [line.rstrip("\r\n") for line in lines]
