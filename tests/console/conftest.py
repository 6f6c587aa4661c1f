"""A browser, and a real server with a node. A page that logs an error or breaks its own policy fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.servers import free_port, unavailable
from tests.system.conftest import running_servers
from tests.system.servers import Server, eventually, is_ready

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        unavailable("chromium", "tests of the console need chromium: run `make test-deps` (root) or install it")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with simulated nodes and a real one, `here`, on a port that stays the same over restarts."""
    with running_servers() as servers:
        started = servers.start("--simulate", "3", "--node-name", "here", "--port", str(free_port()))
        with started.client() as client:
            eventually(lambda: is_ready(client, "here"))
        yield started


@pytest.fixture
def open_page(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """A function that opens a page in a new browser profile, as another machine would."""
    opened = []
    problems: list[str] = []
    expected = request.node.get_closest_marker("expects_failed_requests") is not None

    def noted(message: ConsoleMessage) -> None:
        failed_request = message.text.startswith("Failed to load resource")
        if message.type in {"error", "warning"} and not (expected and failed_request):
            problems.append(message.text)

    def open_(path: str = "/", **options: object) -> Page:
        context = browser.new_context(base_url=server.url, timezone_id="Europe/Berlin", **options)  # type: ignore[arg-type]
        context.set_default_timeout(60_000)
        opened.append(context)
        page = context.new_page()
        page.on("console", noted)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(path)
        return page

    yield open_
    for context in opened:
        context.close()
    assert problems == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, of which a copy is beside the tests so that the check needs no Node.js."""
    return (Path(__file__).parent / "axe-core/axe.min.js").read_text()
