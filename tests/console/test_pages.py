"""Pages on which users write and book: the new workload, the timeline, the administration."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from mooring.wire.cluster.pools import PoolChange
from tests.console.conftest import OpenPage
from tests.console.steps import log_in
from tests.system.servers import Server

expect.set_options(timeout=60_000)
DRY_RUN = "Dry run"


@pytest.mark.slow
def test_a_form_and_yaml_are_one_text_that_is_tried_and_submitted(server: Server, open_page: OpenPage) -> None:
    page = open_page("/new")
    log_in(page)
    tried = page.get_by_role("region", name=DRY_RUN)
    page.get_by_label("Name", exact=True).fill("composed")
    page.get_by_label("Pool").select_option("default")
    page.get_by_label("Command").fill("sh -c 'echo from-the-form; sleep 300'")
    expect(tried.get_by_text("Would start now.")).to_be_visible()
    expect(tried.get_by_role("link", name="here")).to_be_visible()
    page.get_by_label("cpu", exact=True).fill("900")
    expect(tried.get_by_text(re.compile("lacks 900 cpu")).first).to_be_visible()
    page.get_by_role("tab", name="YAML").click()
    editor = page.get_by_label("Workload as YAML")
    expect(editor).to_contain_text('cpu: "900"')
    replace(page, "kind: session\nname: composed\nreplica: 2\n")
    problems = page.get_by_role("status", name="Problems")
    expect(problems).to_contain_text("line 3 there is no field replica; did you mean replicas?")
    expect(problems).to_contain_text("containers is missing")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    text = (
        "kind: session\nname: composed\npool: default\ncontainers: [{command: [sh, -c, 'echo from-yaml; sleep 300']}]\n"
    )
    replace(page, text)
    # The schema completes what is typed.
    page.keyboard.type("prio")
    # By the mouse: the editor ignores Enter for a moment after the list opens.
    page.get_by_role("option", name="priority").click()
    page.keyboard.type("20")
    expect(tried.get_by_text("Would start now.")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="composed")).to_be_visible()
    expect(page.get_by_text(re.compile("^Runs for"))).to_be_visible()
    with server.client() as client:
        assert client.workload("composed").priority == 20
    page.get_by_role("link", name="Resubmit").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("composed-again")
    expect(page.get_by_label("Command")).to_have_value("sh -c 'echo from-yaml; sleep 300'")


def replace(page: Page, text: str) -> None:
    page.get_by_label("Workload as YAML").click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


@pytest.mark.slow
def test_dragging_books_and_shows_conflicts_before_the_request(server: Server, open_page: OpenPage) -> None:
    page = open_page("/timeline?pool=simulated&hours=24")
    log_in(page)
    drag(page, "sim-01")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile("such tasks fit throughout this window"))).to_be_visible()
    dialog.get_by_label("Tasks", exact=True).fill("5000")
    expect(dialog.get_by_text(re.compile(r"^Conflict: only \d+ of 5,000 tasks fit"))).to_be_visible()
    dialog.get_by_label("Tasks", exact=True).fill("1")
    dialog.get_by_label("Purpose").fill("a lecture")
    dialog.get_by_role("button", name="Book it").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".span.booking").filter(has_text="a lecture")).to_be_visible()
    with server.client() as client:
        [booking] = client.timeslots().timeslots
        assert (booking.purpose, booking.status, booking.pool) == ("a lecture", "CONFIRMED", "simulated")
    # The next one that does not fit names the booking that it conflicts with.
    drag(page, "sim-01")
    dialog.get_by_label("Tasks", exact=True).fill("5000")
    expect(dialog.get_by_role("list", name="Conflicts")).to_contain_text("booking")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Zoom out").click()
    expect(page).to_have_url(re.compile("hours=72"))
    page.get_by_role("button", name="Calendar").click()
    expect(page.get_by_role("dialog")).to_contain_text("/api/timeslots.ics?pool=simulated")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the file").click()
    assert "BEGIN:VEVENT" in download.value.path().read_text()


def drag(page: Page, node: str) -> None:
    track = page.locator(f".track[data-node='{node}']")
    expect(track.locator(".free")).to_be_visible()
    box = track.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()


@pytest.mark.slow
def test_admins_change_pools_and_tenants_and_secrets_are_only_written(server: Server, open_page: OpenPage) -> None:
    page = open_page("/admin?part=pools&name=simulated")
    log_in(page)
    page.get_by_label("Search the options").fill("order in which other work")
    option = page.get_by_role("listitem").filter(has_text="backfill.order")
    expect(option).to_contain_text("order in which other work fills gaps")
    option.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("backfill.order").select_option("shortest")
    page.get_by_role("button", name="Change it").click()
    expect(option.locator(".value")).to_have_text("shortest")
    page.get_by_role("tab", name="secrets").click()
    page.get_by_role("button", name="Set a secret").click()
    page.get_by_label("Name", exact=True).fill("token")
    page.get_by_label("Value").fill("hidden-value")
    page.get_by_role("button", name="Set it").click()
    expect(page.get_by_role("cell", name="token", exact=True)).to_be_visible()
    assert "hidden-value" not in page.content()
    page.get_by_role("tab", name="tenants").click()
    page.get_by_role("button", name="New user").click()
    page.get_by_label("Name", exact=True).fill("grace")
    page.get_by_role("button", name="Create it").click()
    expect(page.get_by_text("It is shown only now.")).to_be_visible()
    password = page.locator(".once").inner_text()
    page.get_by_role("button", name="Close").last.click()
    page.get_by_role("tab", name="audit").click()
    expect(page.get_by_role("cell", name="user grace")).to_be_visible()
    # The parts of a user are those that a user may use.
    own = open_page("/admin?part=servers")
    log_in(own, "grace", password)
    expect(own.get_by_role("tab", name="keypairs")).to_have_attribute("aria-selected", "true")
    expect(own.get_by_role("tab", name="servers")).to_have_count(0)


@pytest.mark.slow
def test_options_and_rules_of_every_type_are_set_in_forms(server: Server, open_page: OpenPage) -> None:
    page = open_page("/admin?part=pools&name=simulated")
    log_in(page)
    dialog = page.get_by_role("dialog")

    def change(option: str) -> None:
        page.get_by_role("button", name=f"Change {option}", exact=True).click()

    change("allowed_types")
    dialog.get_by_role("checkbox", name="system").uncheck()
    dialog.get_by_role("button", name="Change it").click()
    expect(dialog).to_have_count(0)
    change("weights")
    dialog.get_by_role("button", name="Add to weights").click()
    dialog.get_by_label("weights: name 1").fill("load")
    dialog.get_by_label("weights: value 1").fill("3")
    dialog.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("listitem").filter(has_text="weights").get_by_text("load 3", exact=True)).to_be_visible()
    change("host_paths")
    dialog.get_by_label("host_paths").fill("/srv/data\n/srv/models")
    dialog.get_by_role("button", name="Change it").click()
    expect(page.get_by_text("/srv/data, /srv/models", exact=True)).to_be_visible()
    with server.client() as client:
        pool = next(each for each in client.pools().pools if each.name == "simulated")
        assert "system" not in pool.allowed_types
        assert (pool.weights, list(pool.host_paths)) == ({"load": 3}, ["/srv/data", "/srv/models"])
        client.change_pool("simulated", PoolChange(weights={}, host_paths=[]))
    page.get_by_role("tab", name="policies").click()
    page.get_by_role("button", name="New policy").click()
    dialog.get_by_label("Name", exact=True).fill("short")
    dialog.get_by_label("Source of max priority").select_option("set here")
    dialog.get_by_label("max priority", exact=True).fill("50")
    dialog.get_by_label("Source of limits").select_option("set here")
    dialog.get_by_role("button", name="Add to limits").click()
    dialog.get_by_label("limits: name 1").fill("cpu")
    dialog.get_by_label("limits: value 1").fill("8")
    dialog.get_by_role("button", name="Create it").click()
    row = page.get_by_role("row").filter(has_text="short")
    expect(row).to_contain_text("max priority 50")
    expect(row).to_contain_text("limits cpu 8")
    row.get_by_role("button", name="Change short").click()
    dialog.get_by_label("Source of max priority").select_option("inherited")
    dialog.get_by_label("Source of max tasks").select_option("no limit")
    dialog.get_by_label("Source of rights").select_option("set here")
    dialog.get_by_role("checkbox", name="private").check()
    dialog.get_by_role("button", name="Change it").click()
    expect(row).to_contain_text("rights private")
    with server.client() as client:
        [policy] = client.policies()
        assert policy.rules == {"limits": {"cpu": "8"}, "max_tasks": None, "rights": ["private"]}
    page.get_by_role("tab", name="tenants").click()
    project = page.get_by_role("row").filter(has=page.get_by_role("button", name="default/default", exact=True))
    for chosen, carriers in (("short", 1), ("(none)", 0)):
        page.get_by_role("button", name="Change the policy of default/default").click()
        dialog.get_by_role("combobox").select_option(chosen)
        dialog.get_by_role("button", name="Set it").click()
        expect(project).to_contain_text("short" if carriers else "–")
        with server.client() as client:
            assert client.policies()[0].carriers == carriers


@pytest.mark.slow
def test_a_deployment_is_created_updated_and_rolled_back(open_page: OpenPage) -> None:
    page = open_page("/new?kind=deployment")
    log_in(page)
    page.get_by_label("Name", exact=True).fill("rolled")
    page.get_by_label("Pool").select_option("simulated")
    page.get_by_label("Image").fill("web:1")
    page.get_by_label("cpu", exact=True).fill("100m")
    expect(page.get_by_role("region", name=DRY_RUN).get_by_text("Would start now (simulated).")).to_be_visible()
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("2 of 2 tasks ready")).to_be_visible()
    page.get_by_role("button", name="Update").click()
    page.get_by_label("Image").fill("web:2")
    page.get_by_role("button", name="Update it").click()
    facts = page.locator(".facts")
    expect(facts.filter(has_text="Image").first).to_contain_text("web:2")
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Return", exact=True).click()
    expect(facts.filter(has_text="Image").first).to_contain_text("web:1")
    expect(page.get_by_text("2 of 2 tasks ready")).to_be_visible()
