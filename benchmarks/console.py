"""The web console in a browser: its size, the time until it is of use on a large cluster, and the cost of open tabs.

One server on SQLite with 5,000 simulated nodes and 50,000 workloads, which wait in a paused pool, and Debian's Chromium
on the same machine. `first_load_kib` is what the browser fetches until the overview shows, compressed.
`interactive_seconds` is the time from a navigation with an empty cache, logged in, until the list of workloads has
rows, `heat_map_update_ms` the time that the page takes to draw 5,000 nodes in another slot. `tabs_50_core_percent` is
the processor time of the server with 50 open overviews in 50 browser profiles, each with a stream of its own, once they
have read their data, without that of the server alone (the mean before and after).
`tabs_50_one_browser_core_percent` is that of 50 in one profile, which share a stream.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

import psutil
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from mooring.client import Client
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import PASSWORD, Server, running_server

NODES = 5_000
WORKLOADS = 50_000
TABS = 50
ROUNDS = 5
SECONDS = 30.0
SETTLE_SECONDS = 10.0
_BATCH = 1_000
_LIMITS = {"MOORING_STREAM_LIMIT": "500", "MOORING_USER_CONNECTION_LIMIT": "500"}


def run() -> dict[str, float]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise RuntimeError("the benchmark of the console needs chromium")
    flags = ("--simulate", str(NODES), "--no-agent", "--log-level", "warning")
    with (
        TemporaryDirectory(prefix="mooring-bench-") as folder,
        running_server(Path(folder) / "data", *flags, environment=_LIMITS, audited=False) as server,
        sync_playwright() as playwright,
    ):
        with server.client() as client:
            _populate(client)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            return _measure(browser, server)
        finally:
            browser.close()


def _populate(client: Client) -> None:
    client.pause_pool("simulated", reason="a benchmark")
    containers = [{"image": "debian", "resources": {"cpu": "1", "memory": "1Gi"}}]
    for first in range(0, WORKLOADS, _BATCH):
        names = (f"work-{number:05}" for number in range(first, min(first + _BATCH, WORKLOADS)))
        work = [{"name": name, "pool": "simulated", "containers": containers} for name in names]
        client.submit_batch([WorkloadRequest.model_validate(each) for each in work])


def _measure(browser: Browser, server: Server) -> dict[str, float]:
    interactive = []
    for _ in range(ROUNDS):
        context, page = _logged_in(browser, server)
        # The login has filled the cache of its profile.
        context.new_cdp_session(page).send("Network.clearBrowserCache")
        began = time.perf_counter()
        page.goto("/workloads")
        page.get_by_role("row").nth(5).wait_for()
        interactive.append(time.perf_counter() - began)
        context.close()
    context, page = _logged_in(browser, server)
    size = page.evaluate(
        "performance.getEntries().filter(each => each.encodedBodySize && !each.name.includes('/api/'))"
        ".reduce((sum, each) => sum + each.encodedBodySize, 0)"
    )
    heat = _heat_map(page)
    context.close()
    alone = _core_percent(server)
    contexts = [_logged_in(browser, server)[0] for _ in range(TABS)]
    beside = _core_percent(server)
    for each in contexts:
        each.close()
    between = _core_percent(server)
    context, _ = _logged_in(browser, server)
    for _ in range(TABS - 1):
        tab = context.new_page()
        tab.goto("/overview")
        tab.get_by_role("heading", name="Overview").wait_for()
    shared = _core_percent(server)
    context.close()
    after = _core_percent(server)
    return {
        "first_load_kib": size / 1024,
        "interactive_seconds": median(interactive),
        "heat_map_update_ms": heat,
        f"tabs_{TABS}_core_percent": beside - mean((alone, between)),
        f"tabs_{TABS}_one_browser_core_percent": shared - mean((between, after)),
    }


def _logged_in(browser: Browser, server: Server) -> tuple[BrowserContext, Page]:
    context = browser.new_context(base_url=server.url)
    context.set_default_timeout(180_000)
    page = context.new_page()
    page.goto("/login")
    page.get_by_label("User", exact=True).fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()
    return context, page


def _heat_map(page: Page) -> float:
    """Return the median time from the choice of a slot to the frame that shows it, in milliseconds."""
    page.goto("/nodes?slot=cpu")
    page.locator(".heat canvas").wait_for()
    change = """(slot) => new Promise((done) => {
        const offers = (select) => [...select.options].some((option) => option.value === slot);
        const select = [...document.querySelectorAll("select")].find(offers);
        const began = performance.now();
        Object.getOwnPropertyDescriptor(HTMLSelectElement.prototype, "value").set.call(select, slot);
        select.dispatchEvent(new Event("change", { bubbles: true }));
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
    })"""
    return median(float(page.evaluate(change, slot)) for slot in ("memory", "cpu") * ROUNDS)


def _core_percent(server: Server) -> float:
    """Return the processor time of the server at rest, in percent of a core."""
    time.sleep(SETTLE_SECONDS)
    process = psutil.Process(server.pid)
    samples = []
    for _ in range(2):
        used = process.cpu_times()
        samples.append((time.perf_counter(), used.user + used.system))
        if len(samples) < 2:
            time.sleep(SECONDS)
    [(began, first), (ended, last)] = samples
    return (last - first) / (ended - began) * 100
