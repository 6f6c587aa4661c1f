"""Scripts that come with a task: run by their interpreter, as process and as container."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.agent.runtimes.scripts import script_command
from tests.agent import builders
from tests.agent.conftest import Node
from tests.agent.runtimes.container import conftest as containers
from tests.engine import Engine


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("#!/bin/bash", ["/bin/bash", "/s", "one"]),
        ("#! /usr/bin/env  python3 -u ", ["/usr/bin/env", "python3 -u", "/s", "one"]),
        ("echo", ["/bin/sh", "/s", "one"]),
        ("#!", ["/bin/sh", "/s", "one"]),
    ],
)
def test_the_interpreter_is_that_of_the_first_line_as_the_kernel_reads_it(first: str, command: list[str]) -> None:
    container = builders.container("job.sh", "one", script=f"{first}\necho\n")
    assert script_command(container, "/s") == command


SCRIPT = '#!/bin/sh\necho "$# $1"; (echo >> "$0") 2> /dev/null || echo read-only; exit 3\n'


async def test_a_process_runs_its_script_with_arguments_from_the_work_folder(node: Node) -> None:
    script = f"#!/bin/sh -e\npwd\ndirname $0\n{SCRIPT}"
    task = builders.order(containers=[builders.container("job.sh", "a b", "c", script=script)])
    assert (await node.run(task)).exit_code == 3
    folder, own, *said = (await node.output(task)).splitlines()
    assert (folder == own, said) == (True, ["2 a b", "read-only"])


async def test_a_container_runs_its_script_instead_of_its_entrypoint(engine: Engine, tmp_path: Path) -> None:
    async with containers.Node(tmp_path, engine) as node:
        task = containers.order(containers=[containers.container("job.sh", "a b", "c", script=SCRIPT)])
        assert (await node.run(task)).exit_code == 3
        assert (await node.output(task)).splitlines() == ["2 a b", "read-only"]
        assert not (node.runtime._shared.paths.task(task.task_id) / "scripts").exists()
