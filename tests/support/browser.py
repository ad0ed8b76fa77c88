"""The system's Chromium, driven by Playwright; nothing is ever downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


# A page draws itself anew every five seconds, which is all that a test would wait by itself.
expect.set_options(timeout=60_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "the status page is tested in Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS])
        yield browser
        browser.close()


# As the page's script has it, and what a test of a redraw waits in its place.
_REDRAWN_AFTER_MS, _SHORTER_MS = 5000, 500
_SHORTEN = f"""const wait = window.setTimeout;
window.setTimeout = (call, ms, ...given) =>
  wait(call, ms === {_REDRAWN_AFTER_MS} ? {_SHORTER_MS} : ms, ...given);"""


def redraw_soon(page: Page) -> None:
    """Have a page, which is not opened yet, draw itself anew twice a second."""
    page.add_init_script(_SHORTEN)


class Visit:
    """A page with everything it said and asked for."""

    def __init__(self, page: Page, port: int, *, soon: bool = False) -> None:
        self.page = page
        if soon:
            redraw_soon(page)
        self.origin = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.goto(f"{self.origin}/")
        expect(page.locator(".card").first).to_be_visible(timeout=60_000)

    def behaved(self) -> None:
        assert self.complaints == []
        outside = [u for u in self.requests if not u.startswith((f"{self.origin}/", "data:"))]
        assert outside == []

    def text(self) -> str:
        return self.page.inner_text("body")


@contextmanager
def visited(browser: Browser, port: int, *, soon: bool = False, **context: Any) -> Iterator[Visit]:
    with browser.new_context(**context) as opened:
        visit = Visit(opened.new_page(), port, soon=soon)
        yield visit
        visit.behaved()
