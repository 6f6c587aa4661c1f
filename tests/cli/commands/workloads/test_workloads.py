from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from mooring.cli.interaction import waiting
from mooring.cli.rendering.formatting import instant
from mooring.wire.workloads.workloads import StartView
from tests.cli.conftest import Mooring
from tests.cli.terminal import run_in_pipe, run_on_terminal
from tests.client.fake_rollouts import rollout_view
from tests.client.fake_server import (
    NOW,
    FakeServer,
    FakeWorkload,
    Refusal,
    failed,
    running,
    succeeded,
    task_view,
    waits,
)

HOSTILE = "[red]\x1b[2Jboo[/red]\n:smile:"
SHOWN = r"[red]\x1b[2Jboo[/red]\n:smile:"


def test_a_deployment_is_waited_for_until_it_runs(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [waits("insufficient-resources", "0 of 3 nodes fit"), running]
    result = mooring(
        "deploy", "web", "--image", "nginx:1", "--replicas", "2", "--cpu", "500m", "--memory", "1Gi", "--slot",
        "fpga=1", "--region", "eu-west", "--env", "A=1=2", "--label", "team=x", "--max-per-node", "1", "--gang",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "web: running, 2 of 2 replicas on node-1\n"
    assert "web: pending, 0 of 2 running (insufficient-resources: 0 of 3 nodes fit)" in result.stderr
    assert server.last("POST", "/api/workloads").body == {
        "name": "web",
        "kind": "deployment",
        "type": "compute",
        "replicas": 2,
        "containers": [
            {
                "image": "nginx:1",
                "environment": {"A": "1=2"},
                "resources": {"cpu": "500m", "memory": "1Gi", "fpga": "1"},
            }
        ],
        "region": "eu-west",
        "labels": {"team": "x"},
        "gang": True,
        "spread": True,
        "max_per_node": 1,
    }


def test_gang_options_are_sent_and_shown(server: FakeServer, mooring: Mooring) -> None:
    result = mooring(
        "deploy", "web", "--image", "x", "-n", "4", "--min-tasks", "3", "--pack", "zone,rack", "--group",
        "g:pack:strict", "--no-preempt", "--not-preemptible", "--min-available", "2",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    sent = server.last("POST", "/api/workloads").body
    assert (sent["min_tasks"], sent["pack"], sent["min_available"]) == (3, ["zone", "rack"], 2)
    assert sent["group"] == {"name": "g", "direction": "pack", "enforcement": "strict"}
    assert (sent["preempts"], sent["preemptible"]) == (False, False)
    assert mooring("deploy", "one", "--image", "x", "--single-node").exit_code == 0
    assert server.last("POST", "/api/workloads").body["single_node"] is True
    assert mooring("run", "--detach", "--group", "g", "--no-preempt", "true").exit_code == 0
    assert server.last("POST", "/api/workloads").body["group"] == {"name": "g"}
    wrong = mooring("deploy", "web2", "--image", "x", "--group", "g:near")
    assert (wrong.exit_code, "write NAME, NAME:spread" in wrong.stderr) == (2, True)


def test_the_status_shows_gang_options(server: FakeServer, mooring: Mooring) -> None:
    server.add(
        "web",
        replicas=4,
        min_tasks=3,
        pack=["zone", "rack"],
        group="g",
        preempts=False,
        preemptible=False,
        min_available=2,
    )
    shown = mooring("status", "web").stdout
    assert re.search(r"together: +at least 3 start together; packed by zone, rack; group g\n", shown)
    assert re.search(r"priority: +10; does not preempt; not preemptible; at least 2 stay\n", shown)


def test_a_deployment_without_an_image_runs_a_command(server: FakeServer, mooring: Mooring) -> None:
    assert mooring("deploy", "worker", "--", "python", "-m", "worker", "--fast").exit_code == 0
    container = server.last("POST", "/api/workloads").body["containers"][0]
    assert container == {"command": ["python", "-m", "worker", "--fast"]}
    nothing = mooring("deploy", "worker")
    assert (nothing.exit_code, "use --image" in nothing.stderr) == (2, True)


def test_a_simulated_deployment_says_so(server: FakeServer, mooring: Mooring) -> None:
    server.simulated = True
    unnamed = mooring("deploy", "web", "--image", "x")
    assert unnamed.stdout == "web: running (simulated), 1 of 1 replicas on node-1\n"
    assert "web runs on simulated nodes" in unnamed.stderr
    assert "simulated nodes" not in mooring("deploy", "web3", "--image", "x", "--pool", "toy").stderr
    assert mooring("deploy", "web2", "--image", "x", "--no-wait").stdout == "web2: pending (simulated)\n"
    assert "running (simulated)" in mooring("ps").stdout
    assert "running (simulated)" in mooring("status", "web").stdout
    assert "running (simulated)" in mooring("history", "web").stdout
    assert json.loads(mooring("status", "web", "-o", "json").stdout)["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("code", "details", "advice"),
    [
        ("insufficient-nodes", {"tasks": {"need": 3, "found": 2}}, ["--replicas 2", "--max-per-node", "mooring token"]),
        ("max-per-node", {}, ["raise --max-per-node"]),
        (
            "insufficient-resources",
            {"lacking": {"memory": {"largest": 2**31}, "fpga": {}}},
            ["--memory", "2Gi", "--slot"],
        ),
        ("insufficient-resources", {"single_node": True}, ["leave out --single-node"]),
        ("strict-group", {"group": "shop"}, [":strict", "--group shop"]),
        ("architecture-mismatch", {}, ["--arch"]),
        ("runtime-missing", {"runtime": "container"}, ["--pool", "without --image"]),
        ("no-nodes", {}, ["--pool"]),
        ("node-not-ready", {}, ["mooring resume"]),
        ("node-owned", {}, ["as root"]),
        ("something-else", {}, ["other work ends"]),
    ],
)
def test_a_failed_deployment_has_a_remedy(
    server: FakeServer, mooring: Mooring, code: str, details: dict[str, object], advice: list[str]
) -> None:
    reason = {"code": code, "message": "too little of it", "by": "fit", "cure": "release", "details": details}
    server.plan = [failed(None, reason=reason)]
    result = mooring("deploy", "web", "--image", "x", "--replicas", "3", "--on-insufficient", "fail")
    assert result.exit_code == 1
    error, hint = result.stderr.splitlines()[-2:]
    assert error == f"error: {code}: web is not running: too little of it"
    assert hint.startswith("hint: ")
    assert all(part in hint for part in advice)


def test_a_deployment_that_does_not_run_in_time_stays(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [waits("insufficient-resources", "no room")]
    result = mooring("deploy", "web", "--image", "x", "--timeout", "0.3")
    assert result.exit_code == 124
    assert "error: timeout: timed out after 0.3 seconds: web: pending" in result.stderr
    assert "it stays in the queue" in result.stderr
    assert not server.find("web").view.removed


def test_mistyped_options_are_rejected_before_anything_is_sent(server: FakeServer, mooring: Mooring) -> None:
    for arguments, message in (
        (["Web", "--image", "x"], "invalid-name: name 'Web'"),
        (["web", "--image", "a b"], "containers"),
        (["web", "--image", "x", "--cpu", "much"], "invalid-quantity: 'much' is not a quantity"),
        (["web", "--image", "x", "--cpu", "0.00001"], "inexact-quantity"),
        (["web", "--image", "x", "--env", "=1"], "--env"),
        (["web", "--image", "x", "--env", "NO_SUCH_VARIABLE"], "not set in your environment"),
        (["web", "--image", "x", "--label", "alone"], "--label 'alone': write NAME=VALUE"),
        (["web", "--image", "x", "--replicas", "0"], "Invalid value"),
    ):
        result = mooring("deploy", *arguments)
        assert result.exit_code == 2, arguments
        if message != "containers":
            assert message in result.stderr
    assert not server.requests("POST", "/api/workloads")


def test_a_variable_of_ones_own_environment_is_passed_on(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "blue")
    mooring("deploy", "web", "--image", "x", "--env", "COLOUR")
    assert server.last("POST", "/api/workloads").body["containers"][0]["environment"] == {"COLOUR": "blue"}


def test_a_refused_submission_keeps_its_code(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    result = mooring("deploy", "web", "--image", "x")
    assert result.exit_code == 1
    assert result.stderr == "error: name-taken: there is a workload 'web' already\n"


def test_ps_lists_all_pages_in_plain_columns(server: FakeServer, mooring: Mooring) -> None:
    for number in range(450):
        server.add(f"job-{number}")
    lines = mooring("ps").stdout.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["NAME", "KIND", "STATUS", "RUNNING", "POOL", "AGE", "REASON"]
    assert len(lines) == 451
    assert len({line.index("session") for line in lines[1:]}) == 1
    assert len(mooring("ps", "--limit", "7").stdout.splitlines()) == 8
    assert len(json.loads(mooring("ps", "-o", "json").stdout)["workloads"]) == 450


def test_ps_shows_the_expected_start_of_pending_work(server: FakeServer, mooring: Mooring) -> None:
    soon, later = (
        datetime.now(UTC) + timedelta(minutes=12, seconds=30),
        datetime.now(UTC) + timedelta(hours=3, minutes=1),
    )
    server.add("planned", start=StartView(position=1, planned_at=soon))
    server.add("reserved", start=StartView(position=2, planned_at=soon, not_before=later, waits_for="time"))
    server.add("behind", start=StartView(position=1234))
    server.add("estimated", start=StartView(position=7, estimated_at=later))
    lines = {line.split()[0]: line for line in mooring("ps").stdout.splitlines()}
    assert ("in 12m" in lines["planned"], "after 3h" in lines["reserved"], "#1,234" in lines["behind"]) == (True,) * 3
    received = mooring("status", "reserved").stdout
    assert "position 2 in the queue of its pool; planned for" in received
    assert "waits for its time" in received
    assert "about 3h" in lines["estimated"]
    assert f"about {instant(later)}, an estimate" in mooring("status", "estimated").stdout


def test_ps_filters_and_shows_the_ended_and_the_others_on_request(server: FakeServer, mooring: Mooring) -> None:
    server.add("done", "SUCCEEDED")
    server.add("theirs", user="ann")
    server.add("mine")
    assert "done" not in mooring("ps").stdout
    assert "done" in mooring("ps", "-a").stdout
    everyone = mooring("ps", "--everyone").stdout
    assert "USER" in everyone
    assert str(server.find("theirs").view.id) in everyone
    assert mooring("ps", "-a", "--status", "succeeded").stdout.splitlines()[1].split()[0] == "done"
    assert server.last("GET", "/api/workloads").query["status"] == "SUCCEEDED"
    assert "1 cpu, 1Gi memory" in mooring("ps", "-o", "wide").stdout


def test_other_peoples_text_does_nothing_to_the_terminal(server: FakeServer, mooring: Mooring) -> None:
    server.add(
        "odd",
        command=["echo", HOSTILE],
        labels={"note": HOSTILE},
        reason={"code": "x", "message": HOSTILE},
        environment={"main": {"A": HOSTILE}},
    )
    texts = [mooring("ps", "-o", "wide").stdout, mooring("status", "odd").stdout]
    texts += [_on_terminal("ps"), _on_terminal("status", "odd")]
    for text in texts:
        assert SHOWN in text
        assert "\x1b[2J" not in text
    exact = json.loads(mooring("status", "odd", "-o", "json").stdout)
    assert exact["labels"] == {"note": HOSTILE}


def test_an_error_with_control_characters_is_escaped(server: FakeServer, mooring: Mooring) -> None:
    server.refuse["GET", "/api/nodes"] = Refusal(500, "internal", HOSTILE)
    assert mooring("nodes").stderr == f"error: internal: {SHOWN}\n"


def test_status_shows_the_tasks_and_the_reason(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", "PENDING", kind="deployment", reason={"code": "no-nodes", "message": "pool 'x' has no nodes"})
    text = mooring("status", "web").stdout
    assert "reason:    no-nodes: pool 'x' has no nodes" in text
    assert "hint: choose another with --pool" in text
    assert "TASK  STATUS" in text
    assert "`mooring explain web` shows why each node is excluded" in text
    missing = mooring("status", "nothing")
    assert missing.exit_code == 3
    assert missing.stderr.startswith("error: not-found: there is no workload 'nothing'\nhint: ")


def test_status_shows_image_digests_and_peer_addresses(server: FakeServer, mooring: Mooring) -> None:
    images = {"main": f"sha256:{'5cdb8fea8fe7' * 5}", "log": f"sha256:{'9f86d081884c' * 5}"}
    pair = server.add("pair")
    pair.become("RUNNING", tasks=[task_view(0, status="RUNNING", digests=images, address="10.88.0.4"), task_view(1)])
    assert "log 9f86d081884c, main 5cdb8fea8fe7 " in mooring("status", "pair").stdout
    assert "10.88.0.4" in mooring("status", "pair", "-o", "wide").stdout


@pytest.mark.parametrize(("status", "words"), [("RUNNING", "running, stopping"), ("CANCELLED", "cancelled")])
def test_only_a_living_workload_is_shown_as_stopping(
    server: FakeServer, mooring: Mooring, status: str, words: str
) -> None:
    server.add("web", status, stopping=True)
    assert f"status:    {words}\n" in mooring("status", "web").stdout


def test_history_is_shown_in_order(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    lines = mooring("history", "web").stdout.splitlines()
    assert "submitted" in lines[1]
    assert "task 0 (attempt 2)" in lines[2]
    assert len(json.loads(mooring("history", "web", "-o", "json").stdout)["history"]) == 2
    assert mooring("history", "nothing").exit_code == 3


def test_logs_are_the_bytes_as_they_were_written(server: FakeServer, mooring: Mooring) -> None:
    server.add("web").log = b"one\n\x1b[31mtwo\xff\n"
    assert mooring("logs", "web").stdout_bytes == b"one\n\x1b[31mtwo\xff\n"
    assert mooring("logs", "web", "--tail", "1", "--task", "0").stdout_bytes == b"\x1b[31mtwo\xff\n"
    assert server.last("GET", "/api/workloads/web/logs").query == {"task": "0", "tail": "1"}
    assert mooring("logs", "nothing").exit_code == 3


def test_logs_of_others_can_only_colour_a_terminal(server: FakeServer, mooring: Mooring) -> None:
    server.add("theirs", user="ann").log = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \xc2\x9b2J"
    text = _on_terminal("logs", "theirs")
    assert "\x1b[31mred\x1b[0m" in text
    assert r"\x1b]0;title\x07 \x9b2J" in text


def test_following_continues_to_the_end(server: FakeServer, mooring: Mooring) -> None:
    workload = server.add("job")
    workload.log = b"line\n"
    succeeded(workload)
    assert mooring("logs", "-f", "job").stdout == "line\n"
    assert server.last("GET", f"/api/workloads/{workload.view.id}/logs").query["follow"] == "true"


def test_followed_output_that_breaks_off_continues_without_loss_or_repetition(
    server: FakeServer, mooring: Mooring
) -> None:
    job = server.add("job")
    job.log, job.breaks, job.steps = b"".join(b"line %d\n" % number for number in range(2000)), 2, [succeeded]
    result = mooring("logs", "-f", "job")
    assert (result.exit_code, result.stdout_bytes) == (0, job.log)


def _at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_logs_show_times_and_begin_at_one(server: FakeServer, mooring: Mooring) -> None:
    server.add("web").timed = {0: [(_at(0), b"one\n"), (_at(60.25), b"two\n")]}
    assert mooring("logs", "web").stdout == "one\ntwo\n"
    marked = "2026-01-01T00:00:00.000Z one\n2026-01-01T00:01:00.250Z two\n"
    assert mooring("logs", "web", "--timestamps").stdout == marked
    assert mooring("logs", "web", "--since", "2026-01-01T00:00:30Z").stdout == "two\n"
    assert mooring("logs", "web", "--since", "10m").stdout == ""
    asked = datetime.fromisoformat(server.last("GET", "/api/workloads/web/logs").query["since"])
    assert timedelta(minutes=9) < datetime.now(UTC) - asked < timedelta(minutes=11)
    wrong = mooring("logs", "web", "--since", "soon")
    assert (wrong.exit_code, "write 10m, 14:00" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("options", [["--since", "10m"], ["--timestamps"], ["--timestamps", "--all-tasks"]])
def test_logs_of_a_server_without_times_say_so(server: FakeServer, mooring: Mooring, options: list[str]) -> None:
    server.add("web").log = b"one\n"
    result = mooring("logs", "web", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "too old for times of output" in result.stderr


def test_followed_logs_with_times_continue_after_a_break(server: FakeServer, mooring: Mooring) -> None:
    job = server.add("job")
    job.timed = {0: [(_at(number), b"line %d\n" % number) for number in range(2000)]}
    job.breaks, job.steps = 2, [succeeded]
    result = mooring("logs", "-f", "--timestamps", "job")
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines), len(set(lines))) == (0, 2000, 2000)
    assert lines[61] == "2026-01-01T00:01:01.000Z line 61"


def test_logs_of_all_tasks_are_ordered_by_time(server: FakeServer, mooring: Mooring) -> None:
    array = server.add("web", replicas=2)
    array.timed = {
        0: [(_at(1), b"a1\n"), (_at(4), b"a4\n"), (_at(3), b"late\n")],
        1: [(_at(2), b"b2\n"), (_at(5), b"b5")],
    }
    shown = run_in_pipe("logs", "web", "--all-tasks").stdout.splitlines()
    assert shown == ["web/0 | a1", "web/1 | b2", "web/0 | a4", "web/0 | late", "web/1 | b5"]
    marked = run_in_pipe("logs", "web", "--all-tasks", "--timestamps").stdout.splitlines()
    assert marked[1] == "web/1 | 2026-01-01T00:00:02.000Z b2"
    since = run_in_pipe("logs", "web", "--all-tasks", "--since", "2026-01-01T00:00:04Z").stdout.splitlines()
    assert since == ["web/0 | a4", "web/1 | b5"]


def test_scale_shows_the_desired_replicas(server: FakeServer, mooring: Mooring) -> None:
    server.add("web", kind="deployment")
    assert mooring("scale", "web", "5").stdout == "web: running, 1 running, 5 replicas wanted\n"
    assert json.loads(mooring("scale", "web", "1", "-o", "json").stdout)["replicas"] == 1
    assert mooring("scale", "nothing", "5").exit_code == 3
    assert mooring("scale", "web", "0").stdout == "web: scaled to 0, 1 running\n"
    assert mooring("ps", "-o", "csv", "--columns", "name,status").stdout == "name,status\nweb,scaled to 0\n"
    assert "scaled to 0" in mooring("status", "web").stdout
    assert mooring("scale", "web", "-1").exit_code == 2


def test_removing_asks_only_a_person(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    unasked = mooring("rm", "web")
    assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
    with run_on_terminal("rm", "web") as terminal:
        terminal.expect("Stop and remove web?")
        terminal.type("n\n")
        assert terminal.exit_code() == 1
    assert not server.find("web").view.removed
    with run_on_terminal("rm", "web") as terminal:
        terminal.expect("Stop and remove web?")
        terminal.type("y\n")
        assert terminal.exit_code() == 0
    assert server.find("web").view.removed


def test_cancelling_leaves_it_on_the_list_and_force_waits_for_no_node(server: FakeServer, mooring: Mooring) -> None:
    server.add("one")
    assert mooring("cancel", "one").stdout == "one: terminating\n"
    assert mooring("cancel", "one", "--force").stdout == "one: cancelled\n"
    assert not server.find("one").view.removed
    assert mooring("cancel", "nothing").exit_code == 3


def test_removing_asks_about_existing_workloads_only(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    missing = mooring("rm", "nothing")
    assert (missing.exit_code, "--yes" in missing.stderr) == (3, False)
    with run_on_terminal("rm", "web", "nothing") as terminal:
        terminal.expect("there is no")
        terminal.expect("Stop and remove web?")
        terminal.type("y\n")
        assert terminal.exit_code() == 3
    assert server.find("web").view.removed


def test_workloads_are_cancelled_by_label_user_or_all_at_once(server: FakeServer, mooring: Mooring) -> None:
    for name, labels, user in (
        ("one", {"team": "a", "tier": "x"}, "admin"),
        ("two", {"team": "a"}, "admin"),
        ("three", {"team": "b"}, "admin"),
        ("four", {"team": "a"}, "ann"),
    ):
        view = server.add(name).view
        view.labels, view.user = labels, user

    def cancelled() -> set[str]:
        return {w.view.name for w in server.workloads.values() if w.view.status in ("TERMINATING", "CANCELLED")}

    unasked = mooring("cancel", "--label", "team=a")
    assert (unasked.exit_code, "--yes" in unasked.stderr, cancelled()) == (2, True, set())
    assert mooring("cancel", "-l", "team=a", "-l", "tier=x", "--yes").exit_code == 0
    assert cancelled() == {"one"}
    assert mooring("cancel", "--user", "ann", "--yes").exit_code == 0
    assert server.last("GET", "/api/workloads").query["everyone"] == "true"
    assert cancelled() == {"one", "four"}
    with run_on_terminal("cancel", "--all") as terminal:
        terminal.expect("Cancel these 2 workloads")
        terminal.type("y\n")
        assert terminal.exit_code() == 0
    assert cancelled() == {"one", "two", "three", "four"}
    nothing = mooring("cancel", "--all")
    assert (nothing.exit_code, nothing.stdout) == (0, "There is nothing to cancel.\n")


@pytest.mark.parametrize("words", [(), ("one", "--all"), ("--all", "--user", "ann"), ("one", "-l", "a=b")])
def test_cancelling_needs_either_names_or_a_choice(
    server: FakeServer, mooring: Mooring, words: tuple[str, ...]
) -> None:
    server.add("one")
    assert mooring("cancel", *words, "--yes").exit_code == 2
    assert server.find("one").view.status not in ("TERMINATING", "CANCELLED")


def test_one_missing_name_does_not_stop_the_removal_of_the_others(server: FakeServer, mooring: Mooring) -> None:
    server.add("one")
    server.add("two")
    result = mooring("rm", "one", "nothing", "two", "--yes")
    assert result.exit_code == 3
    assert server.find("one").view.removed
    assert server.find("two").view.removed


def test_waiting_answers_with_the_highest_exit_code(server: FakeServer, mooring: Mooring) -> None:
    server.add("good").steps = [succeeded]
    server.add("bad").steps = [failed(7)]
    server.add("killed").steps = [failed(-9)]
    assert mooring("wait", "good").exit_code == 0
    assert mooring("wait", "good", "bad").exit_code == 7
    assert mooring("wait", "bad", "killed").exit_code == 137
    assert mooring("wait", "good", "nothing").exit_code == 3


def test_the_exit_code_is_that_of_the_failed_task_and_not_of_tasks_stopped_for_it(
    server: FakeServer, mooring: Mooring
) -> None:
    def one_fails(workload: FakeWorkload) -> None:
        bad = task_view(0, status="FAILED", exit_code=3)
        workload.become("FAILED", tasks=[bad, task_view(1, status="CANCELLED", exit_code=143)])

    server.add("pair").steps = [one_fails]
    assert mooring("wait", "pair").exit_code == 3


def test_a_failure_without_an_exit_code_is_a_failure(server: FakeServer, mooring: Mooring) -> None:
    server.add("lost").steps = [failed(None)]
    assert mooring("wait", "lost").exit_code == 1


def test_waiting_ends_in_time(server: FakeServer, mooring: Mooring) -> None:
    server.add("forever")
    result = mooring("wait", "forever", "--timeout", "0.2")
    assert result.exit_code == 124
    assert "error: timeout: timed out after 0.2 seconds: forever: running" in result.stderr


def test_in_a_pipe_there_is_no_colour_and_no_frame(server: FakeServer, mooring: Mooring) -> None:
    server.add("web")
    result = run_in_pipe("ps")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[1].split()[:3] == ["web", "session", "running"]


def test_no_color_is_respected_on_a_terminal(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add("web")
    assert "\x1b[32mrunning" in _on_terminal("ps")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in _on_terminal("ps")


def _on_terminal(*arguments: str) -> str:
    with run_on_terminal(*arguments) as terminal:
        assert terminal.exit_code() == 0
    return terminal.text


def test_placement_options_are_sent_as_typed(server: FakeServer, mooring: Mooring) -> None:
    result = mooring(
        "deploy", "web", "--image", "x", "--no-wait", "--select", "disk=ssd", "--tolerate", "gpu", "--tolerate",
        "team=a", "--tolerate", "spot:NoExecute:5m", "--spread-over", "zone",
        "--ports", "2", "--gpu", "0.5", "--gpu-model", "A100", "--gpu-model", "H100",
        "--gpu-memory", "10Gi",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert server.last("POST", "/api/workloads").body["placement"] == {
        "node_selector": {"disk": "ssd"},
        "tolerations": [
            {"key": "gpu", "operator": "Exists", "value": ""},
            {"key": "team", "operator": "Equal", "value": "a"},
            {"key": "spot", "operator": "Exists", "value": "", "effect": "NoExecute", "seconds": 300},
        ],
        "spread": [{"topology_key": "zone"}],
        "ports": 2,
        "devices": [{"models": ["A100", "H100"], "memory": "10Gi"}],
    }
    taints = ("--taint", "dedicated=db", "--taint", "old:PreferNoSchedule")
    assert mooring("nodes", "add", "n", "--cpu", "1", "--memory", "1Gi", *taints).exit_code == 0
    assert server.last("POST", "/api/nodes").body["taints"] == [
        {"key": "dedicated", "value": "db"},
        {"key": "old", "value": "", "effect": "PreferNoSchedule"},
    ]


LOOPING = {
    "health": "crash-looping",
    "health_reason": "1 of 1 replica: exited with code 3",
    "restarts": 4,
    "last_exit_code": 3,
    "last_reason": "exited with code 3",
}


def loops(workload: FakeWorkload) -> None:
    workload.become("RUNNING", ready=0, next_retry_at=datetime.now(UTC) + timedelta(seconds=90), **LOOPING)


def test_a_deployment_that_crashes_fails_although_it_reads_running(server: FakeServer, mooring: Mooring) -> None:
    server.plan = [loops]
    result = mooring("deploy", "web", "--", "false")
    assert result.exit_code == 1
    assert "web is crash-looping: 1 of 1 replica: exited with code 3, 4 restarts, next start in" in result.stderr
    assert "`mooring logs web` shows its output" in result.stderr
    assert mooring("deploy", "later", "--detach", "--", "false").exit_code == 0


def test_a_deployment_is_waited_for_until_its_replicas_stay_ready(
    server: FakeServer, mooring: Mooring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STEADY_SECONDS", 0.2)
    server.plan = [running, loops]
    assert mooring("deploy", "web", "--", "sh", "-c", "exit 3").exit_code == 1


def test_crash_loops_are_shown_with_restarts_exit_code_and_backoff(server: FakeServer, mooring: Mooring) -> None:
    workload = server.add("web", kind="deployment", rollout=rollout_view())
    loops(workload)
    listed = mooring("ps", "-o", "wide").stdout
    assert "crash-looping" in listed
    assert "1 of 1 replica: exited with code 3, 4 restarts, next start in" in listed
    shown = mooring("status", "web").stdout
    assert re.search(r"status: +crash-looping\n", shown)
    assert re.search(r"last exit: +exit code 3; exited with code 3\n", shown)
    assert re.search(r"health: +crash-looping\n", mooring("rollout", "status", "web").stdout) is not None


def test_a_deployment_with_a_missing_replica_reads_degraded_with_the_reason(
    server: FakeServer, mooring: Mooring
) -> None:
    reason = "0 of 2 nodes: 2 lack 1 cpu (best has 0)"
    workload = server.add("web", kind="deployment", replicas=3)
    workload.become("RUNNING", running=2, ready=2, health="degraded", health_reason=reason)
    listed = mooring("ps", "-o", "wide").stdout
    assert "degraded 2/3" in listed
    assert reason in listed


def test_single_indexes_of_an_array_are_cancelled(server: FakeServer, mooring: Mooring) -> None:
    server.add("sweep", "RUNNING", replicas=10)
    assert mooring("cancel", "sweep", "--index", "3,5", "--force").stdout == "sweep: running, 2 cancelled\n"
    assert server.last("DELETE", "/api/workloads/sweep/tasks").query == {"index": "3,5", "force": "true"}
    assert "running, 2 cancelled" in mooring("ps").stdout


@pytest.mark.parametrize("words", [("sweep", "--index", "a"), ("--all", "--yes", "--index", "3")])
def test_a_wrong_choice_of_indexes_cancels_nothing(
    server: FakeServer, mooring: Mooring, words: tuple[str, ...]
) -> None:
    server.add("sweep", "RUNNING", replicas=10)
    assert mooring("cancel", *words).exit_code == 2
    assert "cancelled" not in mooring("ps", "--all").stdout


def test_an_array_with_failed_tasks_shows_their_number(server: FakeServer, mooring: Mooring) -> None:
    counts = {"RUNNING": 1, "FAILED": 4, "PENDING": 95}
    server.add("sweep", replicas=100).become("RUNNING", running=1, counts=counts, health="degraded")
    assert "running, 4 failed" in mooring("ps").stdout


def test_a_moved_start_shows_the_first_prediction(server: FakeServer, mooring: Mooring) -> None:
    now = datetime.now(UTC)
    start = StartView(position=1, planned_at=now + timedelta(minutes=90, seconds=30), first_at=now, moves=2)
    server.add("job", "PENDING", start=start)
    first = now.astimezone().strftime("%H:%M")
    assert f"in 90m, was {first}, moved twice" in mooring("ps", "-o", "wide").stdout
    assert f"was {first}, moved twice" in mooring("status", "job").stdout


def test_work_that_cannot_start_shows_the_change_it_needs_and_no_estimate(server: FakeServer, mooring: Mooring) -> None:
    unless = "its cpu limit is raised, or it asks for less"
    reason = {"code": "user-quota-exceeded", "message": "needs 5 cpu, limit 4 (user 'ann')", "cure": "change"}
    start = StartView(position=1, unless=unless, waits_for="change")
    server.add("job", "PENDING", start=start, reason=reason, admission={"failed": [{"by": "user", **reason}]})
    assert "needs a change" in mooring("ps", "-o", "wide").stdout
    shown = mooring("status", "job").stdout
    assert f"cannot start unless {unless}" in shown
    assert shown.count("5 cpu") == 1
    assert "hint: ask for less, or ask an administrator for a higher limit" in shown
