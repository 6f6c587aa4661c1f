"""Screenshots of the console's pages for the documentation, light and dark, of a demo cluster of simulated nodes.

    .venv/bin/python -m scripts.console_screenshots

It starts a server with simulated nodes, submits work, and writes docs/images/console-PAGE-SCHEME.png with Debian's
Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from mooring.client import Client
from mooring.wire.tenancy.quotas import QuotaChange
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.timeslots import MaintenanceRequest, TimeslotRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import PASSWORD, Server, eventually, running_server, workspace

FOLDER = Path(__file__).parents[1] / "docs/images"
PAGES = {
    "overview": "/overview",
    "workloads": "/workloads?everyone=true",
    "workload": "/workloads/simulation?tab=explanation",
    "new": "/new",
    "timeline": "/timeline?pool=simulated&slot=cpu",
    "nodes": "/nodes?slot=cpu",
    "devices": "/nodes?view=devices",
    "sharing": "/sharing",
    "admin": "/admin?part=pools&name=simulated",
}
SCHEMES = ("light", "dark")
_USERS = {"ada": "vision", "grace": "speech"}
_NODES = 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(PAGES), help="One page")
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("chromium is not installed", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    flags = ("--simulate", str(_NODES), "--no-agent")
    with workspace() as folder, running_server(folder / "data", *flags) as server, server.client() as client:
        populate(server, client)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for scheme in SCHEMES:
                take(browser, server.url, scheme, [asked.only] if asked.only else list(PAGES))
            browser.close()
    return 0


def populate(server: Server, client: Client) -> None:
    """Fill the simulated pool with work of three projects that runs, waits and is planned, bookings and maintenance."""
    eventually(lambda: len([node for node in client.nodes().nodes if node.status == "READY"]) >= _NODES)
    for username, project in _USERS.items():
        client.create_user(UserRequest(username=username, password=PASSWORD, project=project))
    with server.client("ada") as ada, server.client("grace") as grace:
        for index in range(36):
            _submit(
                grace,
                f"train-{index:02}",
                cpu=str(2 + index % 5),
                memory=f"{4 + index % 9}Gi",
                time=f"{2 + index % 7}h",
            )
        for index, gpu in enumerate(("2", "1", "500m", "4", "500m", "3", "1", "250m", "2", "4", "1", "2")):
            _submit(ada, f"finetune-{index:02}", cpu="2", memory="8Gi", gpu=gpu, time=f"{3 + index % 5}h")
        _submit(ada, "notebook", cpu="1", memory="2Gi", type="interactive")
        _submit(grace, "render-4k", cpu="48", memory="8Gi", on_insufficient="fail")
    for name, replicas in (("web", 12), ("search", 6), ("inference", 8)):
        _submit(client, name, cpu="2", memory="4Gi", kind="deployment", type="compute", replicas=replicas)
    _submit(client, "simulation", cpu="14", memory="8Gi", time="2h", replicas=_NODES - 10, gang=True)
    _submit(client, "evaluation", cpu="30", memory="16Gi", time="3h", replicas=12)
    client.change_quota("project", "default", QuotaChange(limits={"cpu": 1200, "memory": "2Ti", "sessions": 50}))
    for project, cpus in (("default", 40), ("vision", 120), ("speech", 200)):
        client.change_quota("project", project, QuotaChange(guaranteed={"cpu": cpus}, pool="simulated"))
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=4)
    for index, (purpose, count) in enumerate((("Lecture", 30), ("Robotics course", 12), ("Weekly benchmark", 8))):
        body = {
            "pool": "simulated",
            "start": start + timedelta(hours=3 * index),
            "duration": "2h",
            "resources": {"cpu": 6},
            "count": count,
            "purpose": purpose,
        }
        client.book(TimeslotRequest.model_validate(body))
    body = {"nodes": ["sim-06", "sim-07"], "start": start + timedelta(hours=9), "duration": "4h", "reason": "New disks"}
    client.create_maintenance(MaintenanceRequest.model_validate(body))
    client.drain_node("sim-22", reason="New power supply")
    eventually(lambda: client.workloads(status="RUNNING", everyone=True).total >= 45)
    eventually(lambda: all(slot.status != "REQUESTED" for slot in client.timeslots().timeslots))


def _submit(client: Client, name: str, *, cpu: str, memory: str, gpu: str | None = None, **fields: object) -> None:
    resources = {"cpu": cpu, "memory": memory, **({} if gpu is None else {"gpu": gpu})}
    containers = [{"image": "debian", "command": ["work"], "resources": resources}]
    body = {"name": name, "pool": "simulated", "containers": containers, **fields}
    client.submit(WorkloadRequest.model_validate(body))


def take(browser: Browser, url: str, scheme: str, names: list[str]) -> None:
    context = browser.new_context(
        base_url=url,
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": 1360, "height": 860},
        timezone_id="Europe/Berlin",
    )
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("User", exact=True).fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    for name in names:
        page.goto(PAGES[name])
        settle(page)
        page.screenshot(path=FOLDER / f"console-{name}-{scheme}.png")
        print(f"console-{name}-{scheme}.png")
    context.close()


def settle(page: Page) -> None:
    """Wait until the page shows its data: nothing loads, and no query has been sent for a moment."""
    page.get_by_role("heading", level=1).wait_for()
    page.locator(".live.live").wait_for()
    expect(page.locator(".loading, .skeleton, [aria-busy=true]")).to_have_count(0, timeout=60_000)
    page.wait_for_timeout(1500)


if __name__ == "__main__":
    sys.exit(main())
