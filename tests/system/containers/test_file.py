"""A file with all that containers can be, run by a real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.client.applying import Result, State, apply, compare, delete
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box, document
from tests.system.servers import eventually

SITE = f"""
kind: deployment
name: site
stop_grace_seconds: 1
init_containers:
  - name: pages
    image: {BUSYBOX}
    command: [sh, -c, "id -u > /pages/user; echo $WORD > /pages/index.html"]
    environment: {{WORD: "two words; $(reboot)"}}
    user: "1000"
    mounts: [{{volume: pages, path: /pages}}]
containers:
  - name: server
    image: {BUSYBOX}
    command:
      - sh
      - -c
      - |
        cat /pages/user /pages/index.html
        touch /forbidden 2>&1 || touch /pages/forbidden 2>&1 || echo cannot write
        grep CapEff /proc/self/status
        exec httpd -f -p 8080 -h /pages
    ports: [8080]
    read_only: true
    capabilities: [CHOWN]
    resources: {{cpu: 100m, memory: 64Mi}}
    mounts: [{{volume: pages, path: /pages, read_only: true}}]
    readiness: {{path: /index.html, port: 8080, interval_seconds: 1}}
volumes:
  - name: pages
"""


@pytest.mark.slow
def test_a_manifest_with_every_container_option_runs_on_a_real_engine(box: Box, tmp_path: Path):
    client, site = box.client, document(tmp_path, SITE)
    assert apply(client, site).result is Result.CREATED
    eventually(lambda: client.workload("site").ready)
    detail = client.workload("site")
    assert (detail.simulated, detail.tasks[0].node) == (False, "here")
    printed = b"".join(client.logs("site")).decode()
    assert printed.startswith("1000\ntwo words; $(reboot)\n")
    assert "cannot write\n" in printed
    assert "CapEff:\t0000000000000001\n" in printed
    assert [each.node for each in client.endpoints("site").endpoints] == ["here"]
    assert compare(client, site).state is State.EQUAL
    assert delete(client, site)
    eventually(lambda: not box.engine.containers())
