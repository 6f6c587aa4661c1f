"""Pages on which users write and book: the new workload, the timeline, the administration."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.console.conftest import OpenPage
from tests.console.steps import log_in
from tests.system.servers import Server

expect.set_options(timeout=60_000)
DRY_RUN = "Dry run"


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
    expect(page.get_by_role("option", name="priority")).to_be_visible()
    page.keyboard.press("Enter")
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
