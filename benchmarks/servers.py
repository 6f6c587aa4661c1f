"""A real server in its own process, on a free loopback port and a temporary folder, stopped by its process id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_START_SECONDS = 60
_PASSWORD = "benchmark-password"


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    password: str
    pid: int

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)


@contextmanager
def running_server(data: Path, *flags: str) -> Iterator[RunningServer]:
    command = [str(Path(sys.executable).with_name("mooring")), "up", "--data", str(data), "--port", "0", *flags]
    process = subprocess.Popen(
        command, env={**os.environ, "MOORING_ADMIN_PASSWORD": _PASSWORD}, stdout=subprocess.DEVNULL
    )
    try:
        url = _wait(process, data)
        yield RunningServer(url, _PASSWORD, process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(process: subprocess.Popen[bytes], data: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            url: str = json.loads((data / "server.json").read_text())["url"]
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return url
        except (OSError, ValueError):
            time.sleep(0.1)
    raise RuntimeError("the server did not get ready")
