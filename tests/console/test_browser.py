"""The console in a browser against a real server: what users do, and what they must not see."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workload_fields import SessionRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.console.conftest import OpenPage
from tests.console.steps import log_in
from tests.system.servers import Server, eventually

expect.set_options(timeout=60_000)
LOOP = ["sh", "-c", "echo first words; sleep 600"]
PASSWORD_OF_ADA = "ada-password-1"
TABS = ("tasks", "explanation", "history", "logs", "usage", "access", "shell")
PARTS = ("tenants", "policies", "pools", "keypairs", "secrets", "volumes", "events", "audit", "servers")


def submit(server: Server, name: str, **fields: Any) -> None:
    with server.client() as client:
        client.create_session(SessionRequest.model_validate({"name": name, "command": LOOP, **fields}))


def test_a_session_is_submitted_and_followed_to_its_log_and_a_shell(server: Server, open_page: OpenPage) -> None:
    page = open_page("/workloads")
    log_in(page)
    expect(page).to_have_url(re.compile("/workloads$"))
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    page.get_by_role("link", name="New workload").last.click()
    page.get_by_label("Name", exact=True).fill("followed")
    page.get_by_label("Type").select_option("interactive")
    page.get_by_label("Pool").select_option("default")
    page.get_by_label("Command").fill("sh -c 'echo first words; sleep 600'")
    page.get_by_label("cpu", exact=True).fill("100m")
    page.get_by_role("button", name="Submit").click()
    # Its page is open before it starts: the event stream brings the start.
    expect(page.get_by_text(re.compile("^Runs for"))).to_be_visible()
    page.get_by_role("link", name="Workloads", exact=True).first.click()
    row = page.get_by_role("row").filter(has_text="followed")
    expect(row.get_by_text("running")).to_be_visible()
    row.get_by_role("link", name="followed").click()
    expect(page.get_by_text(re.compile("^Runs for"))).to_be_visible()
    expect(page.get_by_role("link", name="here")).to_be_visible()
    page.get_by_role("tab", name="logs").click()
    expect(page.get_by_role("log").get_by_text("first words")).to_be_visible()
    page.get_by_role("tab", name="shell").click()
    screen = page.locator(".xterm-rows")
    expect(screen).to_contain_text(re.compile("[$#]"))
    page.keyboard.type("echo answer-$((6 * 7))\n")
    expect(screen).to_contain_text("answer-42")
    page.keyboard.type("exit 3\n")
    expect(page.get_by_text("The shell has ended with exit code 3.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.get_by_text(re.compile("^Was cancelled"))).to_be_visible()


def test_a_login_link_works_once_and_leaves_no_code_in_the_address(server: Server, open_page: OpenPage) -> None:
    with server.client() as client:
        code = client.create_login_code().code
    page = open_page(f"/login#code={code}")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert code not in page.url
    # Another tab of the same browser gets the login from this one.
    tab = page.context.new_page()
    tab.goto("/nodes")
    expect(tab.get_by_role("heading", name="Nodes")).to_be_visible()


@pytest.mark.slow
def test_login_link_of_another_user_asks_before_it_replaces_a_login(server: Server, open_page: OpenPage) -> None:
    with server.client() as client:
        client.create_user(UserRequest(username="mallory", password=PASSWORD_OF_ADA))
    page = open_page("/nodes")
    log_in(page)
    for choice, user in (("Stay logged in", "admin"), ("Use the login of the link", "mallory")):
        with server.client() as client:
            client.login("mallory", PASSWORD_OF_ADA)
            code = client.create_login_code().code
        page.goto("about:blank")
        page.goto(f"/login#code={code}")
        expect(page.get_by_role("alert")).to_contain_text("as another user than the one of this link")
        page.get_by_role("button", name=choice).click()
        expect(page.locator(".me")).to_have_text(user)


@pytest.mark.slow
def test_many_tabs_of_one_browser_follow_the_events_over_one_connection(server: Server, open_page: OpenPage) -> None:
    # A browser opens six connections to a server: with a stream for each tab, the seventh tab would never load.
    first = open_page("/nodes")
    log_in(first)
    tabs = [first.context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.goto("/workloads?search=everywhere")
        expect(tab.get_by_text("live", exact=True)).to_be_visible()
    submit(server, "everywhere", type="batch", resources={"cpu": "10m"})
    # The tab that holds the stream closes, and another one takes over.
    first.close()
    for tab in tabs:
        expect(tab.get_by_role("link", name="everywhere")).to_be_visible()
    with server.client() as client:
        client.cancel("everywhere")
    for tab in tabs:
        expect(
            tab.get_by_role("row").filter(has_text="everywhere").get_by_text("cancelled", exact=True)
        ).to_be_visible()


@pytest.mark.slow
def test_a_page_reads_its_lists_once_when_it_is_opened(server: Server, open_page: OpenPage) -> None:
    page = open_page("/workloads")
    log_in(page)
    page.goto("about:blank")
    read: list[str] = []
    page.on("request", lambda request: read.append(request.url))
    page.goto("/workloads")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    page.wait_for_timeout(1000)
    assert len([url for url in read if "/api/workloads?" in url]) == 1


@pytest.mark.slow
def test_the_output_of_many_tasks_is_followed_without_using_up_the_connections(
    server: Server, open_page: OpenPage
) -> None:
    words = ["sh", "-c", "while true; do echo word-of-$MOORING_INDEX; sleep 1; done"]
    container = {"command": words, "resources": {"cpu": "10m", "memory": "16Mi"}}
    with server.client() as client:
        body = {"name": "choir", "pool": "default", "type": "batch", "replicas": 8, "containers": [container]}
        client.submit(WorkloadRequest.model_validate(body))
        eventually(lambda: client.workload("choir").running == 8)
    page = open_page("/workloads/choir?tab=logs")
    log_in(page)
    output = page.get_by_role("log")
    expect(output.get_by_text("word-of-").first).to_be_visible()
    lines = page.get_by_role("status").filter(has_text=" lines")
    for index in range(8):
        page.get_by_label("Search the output").fill(f"word-of-{index}")
        # More than one line each: that which comes later arrives too.
        expect(lines).to_have_text(re.compile(r"^([2-9]|\d\d+) of \d+ lines$"))
    page.get_by_role("tab", name="tasks").click()
    expect(page.get_by_role("link", name="here")).to_have_count(8)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.get_by_text(re.compile("^Was cancelled"))).to_be_visible()


@pytest.mark.slow
def test_documentation_of_the_api_works_under_the_policy(open_page: OpenPage) -> None:
    page = open_page("/docs")
    page.get_by_text("/api/workloads/dry-run", exact=True).click()
    expect(page.get_by_role("button", name="Execute")).to_be_visible()


@pytest.mark.slow
@pytest.mark.expects_failed_requests
def test_a_used_link_and_a_wrong_password_say_so(server: Server, open_page: OpenPage) -> None:
    page = open_page("/login#code=used")
    expect(page.get_by_role("alert")).to_contain_text("this login link was used already")
    page.get_by_label("User", exact=True).fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("the username or the password is wrong")
    log_in(page)


@pytest.mark.slow
def test_a_pending_workload_shows_why_and_when(server: Server, open_page: OpenPage) -> None:
    def work(name: str, replicas: int, time: str) -> WorkloadRequest:
        containers = [{"image": "nginx", "resources": {"cpu": "8"}}]
        body = {"name": name, "pool": "simulated", "type": "batch", "replicas": replicas, "time": time}
        return WorkloadRequest.model_validate({**body, "containers": containers})

    with server.client() as client:
        cpus = sum(float(node.slots["cpu"].free) // 8 * 8 for node in client.nodes().nodes if node.simulated)
        client.submit(work("everything", int(cpus // 8), "1h"))
        eventually(lambda: client.workload("everything").status == "RUNNING")
        client.submit(work("afterwards", 1, "30m"))
        eventually(lambda: (start := client.workload("afterwards").start) and start.planned_at)
    page = open_page("/workloads/afterwards")
    log_in(page)
    when = re.compile(r"^Waits for capacity: 0 of 3 nodes: .*\. Planned to start in \d+m \(\d\d \w+ \d{4}, ")
    expect(page.get_by_text(when)).to_be_visible()
    page.goto("/timeline?pool=simulated")
    planned = page.locator(".plans").get_by_role("button", name="afterwards")
    expect(planned).to_have_attribute("title", re.compile("^afterwards of admin, 1 task: planned for "))
    # It is also on its node, which the plan knows.
    with server.client() as client:
        start = client.workload("afterwards").start
    assert start is not None
    [node] = start.nodes
    there = page.locator(f".track[data-node='{node}'] .span.planned")
    expect(there).to_have_attribute("title", re.compile(r"^afterwards of admin, .*; 1 task here by the present plan$"))
    page.goto("/sharing")
    mine = page.get_by_role("region", name="User admin").get_by_role("row").filter(has_text="cpu")
    expect(mine.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("^cpu: used .*, pending .* %, no limit$")
    )
    page.goto("/workloads?pool=simulated")
    page.get_by_role("button", name="Select all").click()
    page.get_by_role("button", name=re.compile(r"Cancel \d+ workload")).click()
    page.get_by_role("button", name="Cancel them").click()
    with server.client() as client:
        eventually(lambda: {client.workload(name).status for name in ("everything", "afterwards")} == {"CANCELLED"})


@pytest.mark.slow
def test_a_pending_workload_shows_why_and_a_funnel(server: Server, open_page: OpenPage) -> None:
    with server.client() as client:
        containers = [{"image": "nginx", "resources": {"cpu": "999"}}]
        client.submit(
            WorkloadRequest.model_validate({"name": "too-big", "pool": "simulated", "containers": containers})
        )
        eventually(lambda: client.workload("too-big").reason)
    page = open_page("/workloads/too-big?tab=explanation")
    log_in(page)
    expect(page.get_by_text(re.compile(r"^Cannot start as things are: 0 of 3 nodes: 3 lack 999 cpu"))).to_be_visible()
    removed = page.locator(".funnel .removed")
    expect(removed).to_have_count(1)
    expect(removed).to_contain_text("resources")
    expect(removed).to_contain_text("−3")


@pytest.mark.slow
def test_filters_live_in_the_address_and_selected_work_is_cancelled(server: Server, open_page: OpenPage) -> None:
    for name in ("bulk-1", "bulk-2", "other-1"):
        submit(server, name, type="batch", resources={"cpu": "10m"})
    page = open_page("/workloads?search=bulk&sort=name")
    log_in(page)
    expect(page.get_by_text("2 workloads")).to_be_visible()
    expect(page.get_by_role("link", name="other-1")).to_have_count(0)
    page.get_by_label("Select bulk-1").check()
    page.get_by_label("Select bulk-2").check()
    page.get_by_role("button", name="Cancel 2 workloads").click()
    page.get_by_role("button", name="Cancel them").click()
    expect(page.get_by_text("cancelled", exact=True)).to_have_count(2 + 1)  # the two rows and the filter
    page.get_by_role("button", name="cancelled", exact=True).click()
    expect(page).to_have_url(re.compile("status=.*CANCELLED"))
    with server.client() as client:
        assert client.workload("other-1").status in {"PENDING", "SCHEDULED", "PREPARING", "RUNNING"}


@pytest.mark.slow
@pytest.mark.expects_failed_requests
def test_a_second_tenant_sees_nothing_of_the_first(server: Server, open_page: OpenPage) -> None:
    submit(server, "secret-work", type="batch", resources={"cpu": "10m"})
    with server.client() as client:
        client.create_user(UserRequest(username="ada", password=PASSWORD_OF_ADA, project="other"))
    page = open_page("/workloads?all=true")
    log_in(page, "ada", PASSWORD_OF_ADA)
    expect(page.get_by_text("mooring run -- echo hello")).to_be_visible()
    for path in ("/overview", "/nodes/here", "/nodes?view=devices", "/timeline", "/sharing", "/admin?part=events"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.wait_for_load_state("load")
        expect(page.get_by_text("secret-work")).to_have_count(0)
    page.goto("/nodes/here")
    expect(page.get_by_role("heading", name="here")).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    page.goto("/workloads/secret-work")
    expect(page.get_by_role("alert")).to_contain_text("secret-work")
    expect(page.get_by_text("Runs for")).to_have_count(0)


@pytest.mark.slow
def test_a_node_is_drained_after_a_preview_of_where_its_tasks_go(server: Server, open_page: OpenPage) -> None:
    with server.client() as client:
        containers = [{"image": "web:1", "resources": {"cpu": "100m"}}]
        body = {"name": "moving", "kind": "deployment", "type": "compute", "pool": "simulated", "replicas": 3}
        client.submit(WorkloadRequest.model_validate({**body, "containers": containers}))
        source = eventually(lambda: [t.node for t in client.workload("moving").tasks if t.status == "RUNNING"])[0]
    page = open_page("/nodes")
    log_in(page)
    page.get_by_role("link", name=str(source)).click()
    page.get_by_role("button", name="Drain").click()
    preview = page.get_by_role("list", name="Preview")
    expect(preview.get_by_role("listitem").filter(has_text="moving")).to_contain_text(re.compile("→ sim-0"))
    expect(preview).not_to_contain_text(f"→ {source}")
    page.get_by_label("Reason").fill("new disks")
    page.get_by_role("button", name="Drain it").click()
    expect(page.get_by_text(re.compile("new disks"))).to_be_visible()
    expect(page.get_by_text("No task that you may see runs here.")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume it").click()
    expect(page.get_by_text("Is ready and runs 0 tasks.")).to_be_visible()
    with server.client() as client:
        client.cancel("moving")


@pytest.mark.slow
def test_the_palette_goes_to_pages_and_workloads_by_keyboard(server: Server, open_page: OpenPage) -> None:
    submit(server, "from-palette", type="batch", resources={"cpu": "10m"})
    page = open_page("/overview")
    log_in(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("shar")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/sharing$"))
    page.keyboard.press("Control+k")
    page.keyboard.type("from-pal")
    expect(page.get_by_role("option").filter(has_text="from-palette")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="from-palette")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile("/nodes$"))


@pytest.mark.slow
def test_an_expired_login_returns_to_the_same_page(open_page: OpenPage) -> None:
    page = open_page("/login")
    page.clock.install()
    page.goto("/nodes?slot=memory")
    log_in(page)
    expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
    page.clock.fast_forward("02:00:00")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    log_in(page)
    expect(page).to_have_url(re.compile(r"/nodes\?slot=memory$"))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_serious_accessibility_violations(
    server: Server, open_page: OpenPage, axe: str, scheme: str
) -> None:
    submit(server, f"barrier-{scheme}", type="batch", resources={"cpu": "10m"})
    page = open_page("/login", color_scheme=scheme)
    assert barriers(page, axe) == []
    page.goto("/overview")
    log_in(page)
    paths = ["/overview", "/workloads", "/new", "/new?kind=lab", "/new?view=yaml", "/timeline", "/nodes", "/nodes/here"]
    paths += ["/nodes?figure=free", "/nodes?view=devices", "/sharing", "/workloads?search=nothing-like-it"]
    paths += [f"/workloads/barrier-{scheme}{'' if tab == 'tasks' else f'?tab={tab}'}" for tab in TABS]
    paths += [f"/admin?part={part}" for part in PARTS]
    for path in paths:
        page.goto(path)
        page.get_by_role("heading", level=1).wait_for()
        expect(page.locator(".loading")).to_have_count(0)
        assert (path, barriers(page, axe)) == (path, [])
    # Dialogs, the palette, and a narrow screen with its menu.
    page.goto("/nodes/here")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog").locator(".loading")).to_have_count(0)
    assert barriers(page, axe) == []
    page.goto("/overview")
    page.get_by_role("heading", level=1).wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").wait_for()
    assert barriers(page, axe) == []
    page.set_viewport_size({"width": 390, "height": 780})
    for path in ("/overview", "/workloads", "/timeline", "/nodes", "/sharing", "/admin"):
        page.goto(path)
        page.get_by_role("heading", level=1).wait_for()
        expect(page.locator(".loading")).to_have_count(0)
        assert (path, barriers(page, axe)) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.get_by_role("button", name="Pages").click()
    assert barriers(page, axe) == []


def barriers(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    report = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [each for each in report["violations"] if each["impact"] in {"serious", "critical"}]
    return [f"{each['id']}: {node['html']}" for each in serious for node in each["nodes"]]


@pytest.mark.slow
@pytest.mark.expects_failed_requests
def test_a_page_recovers_from_a_restart_of_the_server(server: Server, open_page: OpenPage) -> None:
    page = open_page("/workloads")
    log_in(page)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    server.kill()
    expect(page.get_by_text("reconnecting…")).to_be_visible()
    server.start()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    submit(server, "after-restart", type="batch", resources={"cpu": "10m"})
    expect(page.get_by_role("link", name="after-restart")).to_be_visible()


@pytest.mark.slow
@pytest.mark.expects_failed_requests
def test_a_visible_tab_recovers_while_the_one_that_reads_the_events_is_hidden(
    server: Server, open_page: OpenPage
) -> None:
    hidden = open_page("/nodes")
    log_in(hidden)
    expect(hidden.get_by_text("live", exact=True)).to_be_visible()
    visible = hidden.context.new_page()
    visible.goto("/nodes")
    expect(visible.get_by_text("live", exact=True)).to_be_visible()
    # A browser slows the timers of tabs that nobody looks at; here they stop.
    hidden.evaluate("Object.defineProperty(document, 'hidden', { value: true }); window.setTimeout = () => 0")
    server.kill()
    expect(visible.get_by_text("reconnecting…")).to_be_visible()
    server.start()
    expect(visible.get_by_text("live", exact=True)).to_be_visible()
