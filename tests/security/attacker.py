"""An unprivileged local user who plants links, and swaps a folder for a link as fast as the machine lets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

UID = 298_765
"""Of the agent's range for tenants; no account has it."""

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="ATTACK NOT RUN: it needs root, as which the agent is attacked by another user"
)

_SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, other = (os.fsencode(path) for path in sys.argv[1:])
exchange, here = 2, -100
steps = (
    lambda: os.rmdir(other), lambda: os.unlink(other), lambda: os.unlink(one), lambda: os.mkdir(one),
    lambda: os.symlink(os.environ["TARGET"], other),
)
print("swapping", flush=True)
while True:
    if libc.renameat2(here, one, here, other, exchange) != 0:
        for step in steps:  # the agent has removed one of them: put both back
            try:
                step()
            except OSError:
                pass
"""


_PYTHON = shutil.which("python3", path=os.defpath) or "python3"


def act(script: str) -> None:
    """Run a shell script as the attacker; it has to succeed."""
    subprocess.run(["sh", "-ec", script], user=UID, group=UID, extra_groups=[], check=True)


def nest(folder: Path, depth: int) -> None:
    """Make folders in folders as the attacker, with a file in each."""
    script = f"import os\nfor _ in range({depth}): os.mkdir('d'); open('f', 'w').write('content'); os.chdir('d')"
    subprocess.run([_PYTHON, "-c", script], cwd=folder, user=UID, group=UID, extra_groups=[], check=True)


@contextmanager
def swapping(folder: Path, link: Path, target: Path) -> Iterator[None]:
    """Exchange `folder` and `link`, atomically and without a pause, while the block runs."""
    attacker = subprocess.Popen(
        [_PYTHON, "-c", _SWAP, str(folder), str(link)],
        user=UID,
        group=UID,
        extra_groups=[],
        stdout=subprocess.PIPE,
        env={"TARGET": str(target)},
    )
    try:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"swapping\n"
        yield
        assert attacker.poll() is None, "the attacker gave up"
    finally:
        attacker.kill()
        attacker.communicate()


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can walk through, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="mooring-attack-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
