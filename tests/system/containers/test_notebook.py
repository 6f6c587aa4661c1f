"""An interactive session in a real container, used from this machine: its pages, its WebSockets, a shell, its files."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from mooring.client.applying import Result
from tests.cli.terminal import run_on_terminal
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box, write
from tests.system.servers import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "notebook.yaml"
# One connection of a small server: a page, or a WebSocket that says again what it hears.
ANSWER = r"""#!/bin/sh
cr=$(printf '\r')
while read -r line; do
  line=${line%$cr}
  case $line in "") break;; Sec-WebSocket-Key:*) key=${line#*: };; esac
done
[ -n "$key" ] || { printf 'HTTP/1.0 200 OK\r\n\r\nnotebook\n'; exit; }
accept=$(printf '%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11' "$key" | sha1sum | cut -c1-40 | xxd -r -p | base64)
printf 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
printf 'Sec-WebSocket-Accept: %s\r\n\r\n' "$accept"
while set -- $(dd bs=1 count=6 2>/dev/null | od -An -tu1) && [ $# = 6 ] && [ $(($1 & 15)) = 1 ]; do
  count=$(($2 & 127)) masks="$3 $4 $5 $6"
  printf "\201\\$(printf %03o $count)"
  for byte in $(dd bs=1 count=$count 2>/dev/null | od -An -v -tu1); do
    set -- $masks
    printf "\\$(printf %03o $((byte ^ $1)))"
    masks="$2 $3 $4 $1"
  done
done
"""
# What the image of the example brings along: it is not had without the internet.
IMAGE = "quay.io/jupyter/minimal-notebook:2025-03-14"
SCRIPTS = {"start-notebook.py": "#!/bin/sh\nexec nc -ll -p 8888 -e /bin/answer\n", "answer": ANSWER}
CONSOLE = f"""
  - name: console
    image: {BUSYBOX}
    pull: never
    command: [sh]
    terminal: true
stop_grace_seconds: 0
"""


@pytest.mark.slow
def test_a_notebook_in_a_container_is_used_from_this_machine(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example as it stands, but for its size, with a console beside it."""
    client, mooring = box.client, box.mooring
    box.engine.import_busybox(IMAGE, scripts=SCRIPTS)
    text = EXAMPLE.read_text().replace("{cpu: 1, memory: 2Gi}", "{cpu: 100m, memory: 64Mi}")
    assert IMAGE in text
    assert write(client, tmp_path, text.replace("\nvolumes:", f"{CONSOLE}volumes:")) is Result.CREATED
    eventually(lambda: client.workload("notebook").ready)
    with mooring.begin("forward", "notebook", "0:8888") as forwarding:
        assert forwarding.stdout is not None
        address = forwarding.stdout.readline().split()[0]
        asyncio.run(_use(address))
        forwarding.send_signal(signal.SIGINT)
    done = mooring("exec", "notebook", "-i", "--", "sh", "-c", "cat; echo $MOORING_WORKLOAD; exit 3", given="in ")
    assert (done.returncode, done.stdout) == (3, "in notebook\n")
    for name, value in mooring.environment.items():
        monkeypatch.setenv(name, value)
    _be_at_its_terminal()
    (tmp_path / "notes").write_text("what was found")
    mooring.out("cp", str(tmp_path / "notes"), "notebook:/home/jovyan/work")
    (tmp_path / "back").mkdir()
    mooring.out("cp", "notebook:/home/jovyan/work/notes", str(tmp_path / "back"))
    assert (tmp_path / "back" / "notes").read_text() == "what was found"


def _be_at_its_terminal() -> None:
    """Attach twice: the session continues in between, and Ctrl-C is an ordinary key."""
    with run_on_terminal("attach", "notebook", "-c", "console") as terminal:
        terminal.expect_hidden_input()
        # Attaching sets the window's size, whereupon the shell draws its prompt again.
        terminal.expect("/ # ")
        terminal.type("echo one $((40 + 2)); sleep 1000\n")
        terminal.expect("one 42")
        assert terminal.text.count("echo one") == 1
        terminal.type("\x10\x11")
        assert terminal.exit_code() == 0
        terminal.expect("detached")
    with run_on_terminal("attach", "notebook", "-c", "console") as terminal:
        terminal.expect_hidden_input()
        terminal.interrupt()
        terminal.type("echo slept $?\n")
        terminal.expect("slept 130")


async def _use(address: str) -> None:
    """As a browser does: a page, several of them at once, and a WebSocket that stays."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as browser:

        async def page() -> str:
            async with browser.get(address) as answer:
                return await answer.text()

        async with browser.ws_connect(address) as socket:
            assert await asyncio.gather(*(page() for _ in range(10))) == ["notebook\n"] * 10
            for word in ("ahoy", "again"):
                await socket.send_str(word)
                assert await socket.receive_str() == word
