"""Steps in the browser that several tests take."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.system.servers import PASSWORD


def log_in(page: Page, username: str = "admin", password: str = PASSWORD) -> None:
    page.get_by_label("User", exact=True).fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
