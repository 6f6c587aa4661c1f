from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mooring.cli.rendering.formatting import instant
from mooring.wire.cluster.audit import AuditFinding, AuditReport
from mooring.wire.cluster.nodes import SlotView, TaintView
from mooring.wire.cluster.pools import DemandView, PoolChange
from mooring.wire.cluster.quarantine import QuarantinedTask, QuarantineList
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_on_terminal
from tests.client.fake_server import NOW, FakeServer, node_view


def test_nodes_are_listed_with_free_capacity(server: FakeServer, mooring: Mooring) -> None:
    memory = SlotView(
        capacity="24684100Ki", allocatable="24684100Ki", held="0", reserved="0", used="0", free="12342050Ki"
    )
    server.nodes["edge"] = node_view("edge", slots={"memory": memory}, reason="no heartbeat", status="LOST")
    lines = mooring("nodes").stdout.splitlines()
    assert lines[1].split()[:3] == ["node-1", "ready", "default"]
    assert "6/8" in lines[1]
    assert "11.8Gi/23.5Gi" in lines[2]
    assert lines[2].endswith("no heartbeat")
    assert json.loads(mooring("nodes", "-o", "json").stdout)["nodes"][1]["slots"]["memory"]["free"] == "12342050Ki"
    assert "x86_64" in mooring("nodes", "-o", "wide").stdout


def test_a_simulated_node_is_added_shown_and_removed(server: FakeServer, mooring: Mooring) -> None:
    added = mooring("nodes", "add", "toy", "--cpu", "8", "--memory", "32Gi", "--region", "eu-west", "--max-tasks", "9")
    assert added.stdout == "toy: ready (simulated)\n"
    assert server.last("POST", "/api/nodes").body == {
        "name": "toy",
        "simulated": True,
        "resources": {"cpu": "8", "memory": "32Gi"},
        "region": "eu-west",
        "max_tasks": 9,
    }
    shown = mooring("nodes", "show", "toy").stdout
    assert "status:       ready (simulated)" in shown
    assert shown.splitlines()[-1].split() == ["cpu", "8", "8", "0", "0", "2", "6"]
    assert json.loads(mooring("nodes", "show", "toy", "-o", "json").stdout)["name"] == "toy"
    assert mooring("nodes", "remove", "toy", "--yes").stdout == "toy: removed\n"
    assert mooring("nodes", "remove", "toy", "--yes").exit_code == 3
    assert mooring("nodes", "add", "toy", "--cpu", "8").exit_code == 2


def test_a_node_shows_its_devices_and_enforced_and_advisory_limits(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["lab"] = node_view(
        "lab",
        enforces={"cpu": "cgroup", "memory": "rlimit", "storage": "none", "gpu": "environment"},
        devices={"gpu": [{"index": 0, "capacity": 1000, "model": "T4", "memory": 16 << 30, "taken": 400}]},
    )
    shown = mooring("nodes", "show", "lab").stdout
    assert "enforced:     cpu (cgroup), memory (rlimit)\n" in shown
    assert "advice only:  storage (counted in placement), gpu (listed in the task's environment)\n" in shown
    assert shown.splitlines()[-1].split() == ["gpu", "0", "T4", "16Gi", "1", "0.6"]


def test_the_isolation_of_a_node_is_listed_and_its_reason_shown(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["lab"] = node_view("lab", isolation="user", isolation_reason="no namespaces: unshare: not permitted")
    header, *lines = mooring("nodes").stdout.splitlines()
    assert "ISOLATION" in header
    assert any("lab" in line and " user" in line for line in lines)
    shown = mooring("nodes", "show", "lab").stdout
    assert "isolation:    user (no namespaces: unshare: not permitted)\n" in shown


def test_a_busy_node_is_removed_by_force_only(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["busy"] = node_view("busy", tasks=2)
    refused = mooring("nodes", "remove", "busy", "--yes")
    assert (refused.exit_code, refused.stderr) == (1, "error: node-busy: 2 tasks are charged to busy\n")
    assert mooring("nodes", "remove", "busy", "--force", "--yes").exit_code == 0


def test_removing_a_node_asks_only_a_person(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["busy"] = node_view("busy", tasks=2)
    unasked = mooring("nodes", "remove", "busy", "--force")
    assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
    with run_on_terminal("nodes", "remove", "busy", "--force") as terminal:
        terminal.expect("Remove node busy, on which 2 tasks may run?")
        terminal.type("n\n")
        assert terminal.exit_code() == 1
    assert "busy" in server.nodes
    # A node that does not exist is reported without a question.
    assert mooring("nodes", "remove", "nothing").exit_code == 3


def test_a_node_is_drained_and_resumed(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("drain", "node-1").stdout == "node-1: draining\n"
    assert mooring("resume", "node-1").stdout == "node-1: ready\n"
    assert mooring("drain", "nothing").exit_code == 3
    server.nodes["shut"] = node_view("shut", schedulable=False)
    assert "ready, closed" in mooring("nodes").stdout


def test_a_drain_has_a_time_and_a_reason_and_can_be_waited_for(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["busy"] = node_view("busy", tasks=2)
    drained = mooring("drain", "busy", "--timeout", "2h", "--reason", "new disks")
    assert server.last("POST", "/api/nodes/busy/drain").body == {"timeout_seconds": 7200, "reason": "new disks"}
    until = instant(NOW + timedelta(hours=2))
    assert drained.stdout == f"busy: draining until {until}\n"
    row = next(line for line in mooring("nodes").stdout.splitlines() if line.startswith("busy"))
    assert f"draining until {until}" in row
    assert row.endswith("new disks")
    assert mooring("drain", "busy", "--wait").stdout == "busy: drained\n"
    assert mooring("drain", "busy", "--timeout", "soon").exit_code == 2


def test_a_dry_run_of_a_drain_shows_where_its_tasks_would_go(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["busy"] = node_view("busy", tasks=2)
    lines = mooring("drain", "busy", "--dry-run").stdout.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["web", "0", "ada", "moves", "node-2"],
        ["web", "1", "ada", "moves", "-"],
    ]
    assert lines[-1] == "No other node has capacity for 1 task at the moment"
    assert not [seen for seen in server.seen if seen.method == "POST" and seen.path.endswith("/drain")]
    server.nodes["idle"] = node_view("idle", tasks=0)
    assert mooring("drain", "idle", "--dry-run").stdout == "No task runs on idle: it would be drained at once\n"


def test_a_wait_for_a_drain_ends_when_the_node_is_resumed(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["busy"] = node_view("busy", tasks=2)
    server.undrained.add("busy")
    refused = mooring("drain", "busy", "--wait")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "error: node-resumed: node 'busy' was resumed before it was drained\n",
    )


def test_taints_are_set_taken_away_and_shown(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("nodes", "taint", "node-1", "spot:NoExecute", "lab=a").exit_code == 0
    assert server.last("PATCH", "/api/nodes/node-1/taints").body == {
        "add": [{"key": "spot", "value": "", "effect": "NoExecute"}, {"key": "lab", "value": "a"}]
    }
    shown = mooring("nodes", "show", "node-1").stdout
    assert "spot:NoExecute" in shown
    assert "lab=a:NoSchedule" in shown
    assert mooring("nodes", "untaint", "node-1", "spot:NoExecute", "lab").exit_code == 0
    assert server.last("PATCH", "/api/nodes/node-1/taints").body == {
        "remove": [{"key": "spot", "effect": "NoExecute"}, {"key": "lab"}]
    }
    assert mooring("nodes", "taint", "node-1", "spot:Never").exit_code == 2


def test_a_node_that_is_avoided_says_why(server: FakeServer, mooring: Mooring) -> None:
    failing = TaintView(key="mooring/failing", value="", effect="PreferNoSchedule", since=NOW, reason="3 failed there")
    server.nodes["bad"] = node_view("bad", taints=[failing])
    row = next(line for line in mooring("nodes").stdout.splitlines() if line.startswith("bad"))
    assert "ready, avoided" in row
    assert row.endswith("3 failed there")


def test_pool_change_without_an_option_is_rejected(mooring: Mooring) -> None:
    refused = mooring("pool", "change", "default")
    assert refused.exit_code == 2
    assert "there is nothing to change" in refused.stderr


def test_every_field_of_a_pool_has_an_option(server: FakeServer, mooring: Mooring) -> None:
    changed = mooring(
        "pool", "change", "default", "--profile", "pack", "--weight", "load=2", "--binding", "two_phase",
        "--scorer-option", "load:window=5", "--filter", "approved:value=gold,strict=true", "--filter", "quiet",
        "--selector", "highest:ties=random,top=3",
        "--hold-seconds", "9", "--hold-max-seconds", "90",
        "--fragmentation", "--preemption", "requeue", "--scope", "reclaim", "--min-runtime", "5",
        "--booking-lead", "600", "--booking-grace", "60", "--booking-notice", "120",
        "--open-ended", "until_lead", "--open-ended-notice", "7200",
        "--sequencer", "multi_factor", "--factor", "age=3", "--half-life", "2", "--lookback", "9", "--slot-weight",
        "gpu=5", "--ageing", "60", "--head-of-line", "backfill", "--backfill-depth", "3",
        "--backfill-order", "shortest", "--max-bypass", "600", "--expectation", "history",
        "--on-insufficient", "fail", "--pending-timeout", "70",
        "--type", "batch", "--type", "interactive", "--max-tasks-per-node", "4",
        "--default-cpu", "500m", "--default-memory", "2Gi", "--default-time", "80", "--max-time",
        "90", "--idle-timeout", "1800", "--deprioritise", "10",
        "--validator", "concurrency=enqueue,scheduling", "--validator", "dependencies=",
        "--no-public", "--privileged", "--host-path", "/data", "--host-path", "/srv/models",
        "--shared-volumes", "/mnt/shared", "--isolation", "user",
        "--health", "check-gpus -q 'two words'", "--health-interval", "30", "--health-timeout", "20",
        "--scale-goal", "fewest", "--least-nodes", "1", "--most-nodes", "8", "--scale-cooldown", "30", "--idle-time",
        "900", "--shrink-cooldown", "600", "--shrink", "drain", "--defrag-moves", "6", "--defrag-gain", "drain-nodes",
        "--defrag-max-lost", "30m", "--defrag-interactive",
    )  # fmt: skip
    assert changed.stdout == "default: changed\n"
    body = server.last("PATCH", "/api/pools/default").body
    assert body == {
        "profile": "pack",
        "weights": {"load": 2},
        "scorer_options": {"load": {"window": 5}},
        "filters": {"approved": {"value": "gold", "strict": True}, "quiet": {}},
        "selector": "highest",
        "selector_options": {"ties": "random", "top": 3},
        "bookings": {
            "lead_seconds": 600,
            "grace_seconds": 60,
            "notice_seconds": 120,
            "open_ended": "until_lead",
            "open_ended_notice_seconds": 7200,
        },
        "binding": "two_phase",
        "hold_seconds": 9,
        "hold_max_seconds": 90,
        "fragmentation": True,
        "preemption": {"mode": "requeue", "scope": "reclaim", "min_runtime_seconds": 5},
        "sequencer": "multi_factor",
        "factors": {"age": 3},
        "fair_share": {"half_life_days": 2, "lookback_days": 9, "slot_weights": {"gpu": 5}},
        "ageing_seconds": 60,
        "head_of_line": "backfill",
        "backfill": {"depth": 3, "order": "shortest", "max_bypass_seconds": 600, "expectation": "history"},
        "on_insufficient": "fail",
        "pending_timeout_seconds": 70,
        "allowed_types": ["batch", "interactive"],
        "max_tasks_per_node": 4,
        "isolation": "user",
        "default_cpu": "500m",
        "default_memory": "2Gi",
        "default_time_seconds": 80,
        "max_time_seconds": 90,
        "idle_timeout_seconds": 1800,
        "deprioritise": 10,
        "validators": {"concurrency": ["enqueue", "scheduling"], "dependencies": []},
        "public": False,
        "privileged": True,
        "host_paths": ["/data", "/srv/models"],
        "shared_volumes": "/mnt/shared",
        "health": {"command": ["check-gpus", "-q", "two words"], "interval_seconds": 30, "timeout_seconds": 20},
        "scaling": {
            "goal": "fewest",
            "least": 1,
            "most": 8,
            "cooldown_seconds": 30,
            "idle_seconds": 900,
            "shrink_cooldown_seconds": 600,
            "shrink": "drain",
        },
        "defragmentation": {
            "moves_per_hour": 6,
            "gain": "drain-nodes",
            "max_lost_seconds": 1800,
            "interactive": True,
        },
    }
    assert body.keys() == PoolChange.model_fields.keys()


def test_pool_create_takes_every_option_of_pool_change(server: FakeServer, mooring: Mooring) -> None:
    created = mooring("pool", "create", "lab", "--simulated", "--ageing", "60", "--most-nodes", "8", "--no-public")
    assert created.stdout == "lab: created\n"
    assert server.last("POST", "/api/pools").body == {
        "name": "lab",
        "simulated": True,
        "ageing_seconds": 60,
        "scaling": {"most": 8},
        "public": False,
    }


def test_a_pool_option_outside_its_bounds_is_rejected_with_the_bounds(server: FakeServer, mooring: Mooring) -> None:
    refused = mooring("pool", "change", "default", "--hold-seconds", "3601")
    assert refused.exit_code == 2
    assert "less than or equal to 3600" in " ".join(refused.stderr.replace("│", " ").split())


def test_preemption_is_turned_off_and_its_details_need_a_mode(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("pool", "change", "default", "--preemption", "off").exit_code == 0
    assert server.last("PATCH", "/api/pools/default").body == {"preemption": {"enabled": False}}
    refused = mooring("pool", "change", "default", "--scope", "user")
    assert refused.exit_code == 2
    assert "--preemption requeue" in refused.stderr


def test_an_empty_health_command_removes_the_check_and_an_incomplete_one_is_rejected(
    server: FakeServer, mooring: Mooring
) -> None:
    assert mooring("pool", "change", "default", "--health", "").exit_code == 0
    assert server.last("PATCH", "/api/pools/default").body == {"health": {"command": []}}
    for wrong, why in ((["--health", "check 'gpu"], "No closing quotation"), (["--health-timeout", "5"], "--health")):
        refused = mooring("pool", "change", "default", *wrong)
        assert refused.exit_code == 2
        assert why in refused.stderr


def test_a_pool_is_made_shown_and_removed(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("pool", "create", "lab", "--sequencer", "drf", "--runtime", "container").stdout == "lab: created\n"
    assert server.last("POST", "/api/pools").body == {"name": "lab", "sequencer": "drf", "runtimes": ["container"]}
    shown = {
        line.partition(":")[0]: line.partition(":")[2].strip()
        for line in mooring("pool", "show", "lab").stdout.splitlines()
    }
    assert (shown["sequencer"], shown["head of line"], shown["runtimes"]) == ("drf", "backfill", "container")
    assert "lab" in mooring("pool", "list").stdout
    assert mooring("pool", "remove", "lab").stdout == "lab: removed\n"
    assert mooring("pool", "show", "lab").exit_code == 3


def test_a_pool_shows_the_demand_that_it_expects(server: FakeServer, mooring: Mooring) -> None:
    learned = [
        DemandView(request={"cpu": "8", "gpu": "1"}, models=["A100", "H100"], percent=62.5),
        DemandView(request={"gpu": "0.5"}, percent=37.5),
    ]
    server.pools["toy"] = server.pools["toy"].model_copy(update={"learned_demand": learned})
    lines = [line for line in mooring("pool", "show", "toy").stdout.splitlines() if line.startswith("expects")]
    assert [line.partition(":")[2].strip() for line in lines] == [
        "62.5 %: cpu 8, gpu 1 on A100 or H100",
        "37.5 %: gpu 0.5",
    ]


def test_a_pool_is_paused_and_resumed(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("pool", "pause", "toy", "--reason", "new cables").stdout == "toy: paused\n"
    assert server.last("POST", "/api/pools/toy/pause").body == {"reason": "new cables"}
    assert "toy (simulated, paused)" in mooring("pool", "list").stdout
    assert "new cables" in mooring("pool", "show", "toy").stdout
    assert mooring("pool", "resume", "toy").stdout == "toy: resumed\n"
    assert "paused" not in mooring("pool", "list").stdout
    assert mooring("pool", "pause", "nowhere").exit_code == 3


def test_pools_are_listed(mooring: Mooring) -> None:
    lines = mooring("pool", "list").stdout.splitlines()
    assert lines[1].split() == ["default", "1", "process", "balanced", "fair_queue", "optimistic", "off"]
    assert lines[2].startswith("toy (simulated)")
    assert len(json.loads(mooring("pools", "-o", "json").stdout)["pools"]) == 2


def test_a_join_token_comes_as_the_command_to_run(server: FakeServer, mooring: Mooring) -> None:
    result = mooring("token", "create", "--name", "edge", "--pool", "gpu", "--expires-in", "60")
    assert shlex.split(result.stdout) == [
        "MOORING_JOIN_TOKEN=join-1", "mooring", "agent", "--server", server.url, "--name", "edge",
    ]  # fmt: skip
    assert "other machines cannot reach" in result.stderr
    assert server.last("POST", "/api/join-tokens").body == {"name": "edge", "pool": "gpu", "expires_in_seconds": 60}
    assert json.loads(mooring("token", "create", "--name", "edge", "-o", "json").stdout)["token"] == "join-1"
    assert mooring("token", "create").exit_code == 2


def test_an_audit_with_findings_fails_until_it_is_repaired(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("audit").stdout == "checked 1 nodes: 0 findings\n"
    finding = AuditFinding(rule="counter", subject="node-1 cpu", expected="2", found="3")
    server.report = AuditReport(clean=False, checked={"nodes": 1}, findings=[finding])
    found = mooring("audit")
    assert found.exit_code == 1
    assert "node-1 cpu" in found.stdout
    assert "mooring audit --dry-run" in found.stdout
    listed = mooring("audit", "-o", "csv", "--columns", "rule,subject")
    assert (listed.exit_code, listed.stdout.splitlines()) == (1, ["rule,subject", "counter,node-1 cpu"])
    assert mooring("audit", "-o", "name").stdout == "node-1 cpu\n"
    assert mooring("audit", "--dry-run", "--columns", "table").stdout.splitlines() == ["TABLE", "node_resources"]
    planned = mooring("audit", "--dry-run")
    assert planned.exit_code == 1
    assert "node_resources" in planned.stdout
    assert mooring("audit").exit_code == 1
    repaired = mooring("audit", "--repair")
    assert repaired.exit_code == 0
    assert "node_resources" in repaired.stdout
    assert "0 findings, 1 row repaired" in repaired.stdout
    assert json.loads(mooring("audit", "-o", "json").stdout)["clean"] is True


def test_an_ambiguous_finding_has_advice(server: FakeServer, mooring: Mooring) -> None:
    split = AuditFinding(rule="ports", subject="task 1", expected="a majority", found="1; 2", ambiguous=True)
    server.report = AuditReport(clean=False, checked={"nodes": 1}, findings=[split])
    found = mooring("audit")
    assert found.exit_code == 1
    assert "1 finding ambiguous" in found.stdout
    assert "--repair" not in found.stdout


def test_the_version_of_both_sides_is_shown(server: FakeServer, mooring: Mooring) -> None:
    from mooring import __version__

    assert mooring("version", "-o", "yaml").stdout.splitlines()[0] == f"version: {__version__}"
    lines = mooring("version").stdout.splitlines()
    assert lines[0] == f"mooring {__version__}"
    assert lines[1] == f"server  9.9 ({server.url}, all)"
    assert json.loads(mooring("version", "-o", "json").stdout)["server_version"] == "9.9"
    offline = mooring("version", "--server", "http://127.0.0.1:9")
    assert (offline.exit_code, "does not answer" in offline.stdout) == (0, True)
    assert mooring("--version").stdout == f"mooring {__version__}\n"


@pytest.mark.parametrize("command", ["workloads", "nodes"])
def test_names_are_completed_by_the_server_and_without_it_nothing_is_printed(
    server: FakeServer, mooring: Mooring, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("web-1")
    server.add("job")
    words = {"workloads": ("status", "we"), "nodes": ("drain", "no")}[command]
    monkeypatch.setenv("_MOORING_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"mooring {' '.join(words)}")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert mooring().stdout.strip() == {"workloads": "web-1", "nodes": "node-1"}[command]
    monkeypatch.setenv("MOORING_SERVER", "http://127.0.0.1:9")
    away = mooring()
    assert (away.stdout.strip(), away.stderr) == ("", "")


def test_tasks_in_quarantine_are_listed_and_ended_by_node_by_id_or_all(server: FakeServer, mooring: Mooring) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    fields: dict[str, Any] = {"node": "edge", "seen_at": at, "ends_at": at, "workload_name": "web"}
    waiting = QuarantinedTask(**fields, task_id=uuid4(), confirmed_by=None)
    ending = QuarantinedTask(**fields, task_id=uuid4(), confirmed_by="ada")
    server.quarantine = QuarantineList(tasks=[waiting, ending])
    lines = mooring("quarantine").stdout.splitlines()
    assert lines[1].split()[:3] == ["edge", str(waiting.task_id), "web"]
    assert lines[2].endswith("now, by ada")
    assert len(json.loads(mooring("quarantine", "-o", "json").stdout)["tasks"]) == 2
    for words, body in (
        (["edge"], {"node": "edge"}),
        ([str(waiting.task_id)], {"task_id": str(waiting.task_id)}),
        (["--all"], {"everything": True}),
    ):
        assert mooring("quarantine", "end", *words).stdout == "1 task will be stopped\n"
        assert server.last("POST", "/api/quarantine/end").body == body
    assert mooring("quarantine", "end").exit_code == 2


def test_labels_and_region_of_a_node_are_set_and_removed(server: FakeServer, mooring: Mooring) -> None:
    server.nodes["n1"] = node_view("n1")
    assert mooring("nodes", "label", "n1", "zone=b", "rack-", "--region", "moon").exit_code == 0
    assert server.last("PATCH", "/api/nodes/n1").body == {"labels": {"zone": "b", "rack": None}, "region": "moon"}
    refused = mooring("nodes", "label", "n1")
    assert (refused.exit_code, "no change is given" in refused.stderr) == (2, True)
