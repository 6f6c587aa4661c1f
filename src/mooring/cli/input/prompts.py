"""Passwords from the person or from standard input; never from the command line, where others could read them."""

from __future__ import annotations

import sys

import typer

from mooring.model.errors import InvalidInput


def ask_password(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("there is nobody to ask for a password; use --password-stdin")
    answer: str = typer.prompt(prompt, hide_input=True, err=True)
    return answer


def ask_new_password(name: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidInput("there is nobody to ask for a password; use --password-stdin")
    answer: str = typer.prompt(f"New password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    return answer


def read_lines(count: int) -> list[str]:
    """So many lines of standard input, without their ends."""
    lines = [sys.stdin.readline() for _ in range(count)]
    if not all(lines):
        raise InvalidInput(f"standard input holds fewer than {count} lines" if count > 1 else "standard input is empty")
    return [line.rstrip("\r\n") for line in lines]
