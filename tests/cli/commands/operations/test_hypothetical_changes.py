"""Hypothetical questions on the command line: options become one request, answers become tables."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import pytest

from mooring.wire.cluster.what_if import SizeFound, SizeTry, WaitsView, WhatIfAnswer, WorkloadEffect
from tests.cli.conftest import Mooring
from tests.client.fake_server import NOW, FakeServer

WAITS = WaitsView(workloads=2, started=2, mean_seconds=1800, median_seconds=1800, p95_seconds=3600)
EFFECT = WorkloadEffect(
    id=UUID(int=1),
    name="train",
    pool="default",
    created_at=NOW,
    running=False,
    stopped=False,
    cancelled=False,
    start=NOW + timedelta(hours=1),
    changed_start=NOW,
    end=None,
    changed_end=None,
)
ANSWER = WhatIfAnswer(
    at=NOW,
    until=NOW + timedelta(days=7),
    nodes=3,
    without=WAITS,
    changed=WAITS,
    earlier=1,
    later=0,
    unchanged=1,
    stopped=0,
    workloads=[EFFECT],
    workloads_left_out=0,
    search=SizeFound(nodes=1, tries=[SizeTry(nodes=0, p95_seconds=None), SizeTry(nodes=1, p95_seconds=3600)]),
    assumptions=["nothing else happens"],
)


def test_options_become_one_request(server: FakeServer, mooring: Mooring) -> None:
    server.what_if = ANSWER
    options = (
        "what-if train --add-nodes 4 --like n1 --remove-nodes n2,n3 --fail-nodes rack=r7 --cancel old "
        "--set-limit project/vision:gpu=32 --pool-option default:backfill.depth=4 --pool-option default:profile=pack "
        "--until 2d --everyone"
    )
    mooring(*options.split())
    assert server.last("POST", "/api/what-if").body == {
        "workloads": ["train"],
        "add_nodes": [{"like": "n1", "count": 4}],
        "remove_nodes": {"names": ["n2", "n3"]},
        "fail_nodes": {"selector": "rack=r7"},
        "cancel": ["old"],
        "limits": [{"scope": "project", "tenant": "vision", "limits": {"gpu": "32"}}],
        "pools": {"default": {"backfill": {"depth": 4}, "profile": "pack"}},
        "seconds": 172800,
        "everyone": True,
        "limit": 20,
    }


def test_answer_shows_starts_waits_search_and_assumptions(server: FakeServer, mooring: Mooring) -> None:
    server.what_if = ANSWER
    lines = mooring("what-if", "--like", "n1", "--p95-wait", "10m").stdout.splitlines()
    assert lines[1].split() == ["train", "default", "pending", "60m", "0s", "60m", "earlier"]
    assert "1 start earlier, 0 later, 1 unchanged" in lines
    assert "1 added node suffices" in lines
    assert lines[-1] == "- nothing else happens"
    assert server.last("POST", "/api/what-if").body["search"] == {
        "like": "n1",
        "p95_wait_seconds": 600,
        "most": 64,
    }
    assert json.loads(mooring("what-if", "-o", "json").stdout)["workloads"][0]["name"] == "train"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--add-nodes 4", "--like NODE"),
        ("--like n1", "--add-nodes or --p95-wait"),
        ("--set-limit vision:gpu=1", "SCOPE/TENANT:SLOT=N"),
        ("--pool-option default", "POOL:OPTION=VALUE"),
        ("--pool-option default:no_such=1", "no_such"),
    ],
)
def test_unclear_options_are_refused(server: FakeServer, mooring: Mooring, options: str, problem: str) -> None:
    result = mooring("what-if", *options.split())
    assert result.exit_code == 2
    assert problem in result.stderr
