"""An open page in a hostile world: what answers is odd, is another daemon, or is nobody."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from blizzard_core.observability.background_cache import CachedDocument
from blizzard_core.observability.web import Server
from tests.support import page_samples
from tests.support.browser import chromium

ONE = "#/target/orders-00/america"
FILE = "#/file/s3%3A%2F%2Fraw%2Fx%2Fy.json"
# What no calendar and no counter has, as JSON may say it.
BEYOND = 1e300

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def few() -> Iterator[Server]:
    """Three sources."""
    panel = page_samples.panel(3, trouble=False)
    with panel.providers.open(), Server("127.0.0.1:0", panel) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def seen(browser: Browser, server: Server, place: str = "") -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.port}/{place}")
        expect(page.locator("#verdict")).not_to_contain_text("Asking", timeout=60_000)
        yield page
        assert errors == []


def changed(page: Page, what: str, change: Change) -> None:
    """Have answers changed on their way to the page from now on."""

    def pass_on(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        change(document)
        route.fulfill(response=response, body=json.dumps(document))

    page.route(what, pass_on)


def instead(page: Page, what: str, status: int, body: str, kind: str = "application/json") -> None:
    page.route(what, lambda route: route.fulfill(status=status, body=body, content_type=kind))


def again(page: Page) -> None:
    page.evaluate("() => { refresh(); }")


def _odd_times(document: dict[str, Any]) -> None:
    [target] = document["targets"]
    target["poll"]["at"] = BEYOND
    for done in target["finished"]:
        done["at"] = -BEYOND
    for said in target["beside"]["document"] or ():
        said["updated"] = said["rows"] = None
        said["saved"] = BEYOND


def _odd_past(document: dict[str, Any]) -> None:
    for batch in (document["document"] or {"batches": []})["batches"]:
        batch["at"] = BEYOND
        batch["rows"] = 10**400


def test_times_and_counts_that_cannot_be_are_shown_as_such(browser: Browser, few: Server) -> None:
    with seen(browser, few) as page:
        changed(page, "**/status.json", _odd_times)
        changed(page, "**/past.json", _odd_past)
        page.evaluate(f"location.hash = '{ONE}'")
        expect(page.locator("#one")).to_contain_text("Batches, from the journal", timeout=60_000)
        expect(page.locator("#one")).to_contain_text("no date")
        expect(page.locator("#verdict")).to_contain_text("well")


def test_a_letter_without_a_date_does_not_hide_a_files_story(browser: Browser) -> None:
    letter = {"stage": "parse", "error": "bad", "object": "dlq/x", "timestamp": "yesterday"}
    providers = page_samples.providers(
        page_samples.Clock(), lambda uri: {**page_samples.story(uri), "dead_letter": letter}
    )
    panel = page_samples.panel(1, providers_=providers)
    with (
        panel.providers.open(),
        Server("127.0.0.1:0", panel) as server,
        seen(browser, server, FILE) as page,
    ):
        expect(page.locator("#one")).to_contain_text("no date", timeout=60_000)


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (500, "500 Internal Server Error", "answer 500"),
        (200, "<!doctype html><title>Grafana</title>", "no answer of a daemon"),
        (200, '{"status": "green"}', "no answer of a daemon"),
        (200, "null", "no answer of a daemon"),
        (421, "this server has another name", "answer 421"),
    ],
)
@pytest.mark.parametrize("place", ["", ONE])
def test_page_reports_invalid_answers_differently_from_no_answer(
    browser: Browser, few: Server, place: str, status: int, body: str, told: str
) -> None:
    with seen(browser, few, place) as page:
        instead(page, "**/*.json", status, body)
        again(page)
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text(told)
        expect(verdict).to_have_class("bad")
        expect(verdict).not_to_contain_text("No answer from the daemon")
        expect(verdict).not_to_contain_text("There is no")
        page.unroute("**/*.json")
        again(page)
        expect(verdict).to_contain_text("well")


def test_page_reports_a_document_that_it_cannot_draw(browser: Browser, few: Server) -> None:
    def break_it(document: dict[str, Any]) -> None:
        for target in document["targets"]:
            target["notices"] = 7

    with seen(browser, few) as page:
        changed(page, "**/overview.json", break_it)
        again(page)
        expect(page.locator("#verdict")).to_contain_text("this page cannot draw it")
        expect(page.locator("#verdict a")).to_have_attribute("href", "status.json")


def test_page_draws_a_source_again_when_it_returns(browser: Browser, few: Server) -> None:
    with seen(browser, few, ONE) as page:
        expect(page.locator("#one .commands").first).to_be_visible()
        instead(page, "**/targets/**", 404, '{"error": "there is nothing here of that name"}')
        again(page)
        expect(page.locator("#verdict")).to_contain_text("There is no orders-00/america here")
        assert page.title() == "There is no orders-00/america here"
        page.unroute("**/targets/**")
        again(page)
        expect(page.locator("#verdict")).to_contain_text("well")
        expect(page.locator("#one .commands").first).to_be_visible()


def test_a_daemon_with_changed_sources_is_drawn(browser: Browser, few: Server) -> None:
    with seen(browser, few) as page:
        changed(page, "**/status.json", lambda document: document["targets"].pop())
        again(page)
        expect(page.locator(".card")).to_have_count(2)
        expect(page.locator("#verdict")).not_to_contain_text("cannot draw")


def test_names_with_numbers_sort_by_the_numbers(browser: Browser, few: Server) -> None:
    def rename(document: dict[str, Any]) -> None:
        names = zip(document["targets"], ("p10/main", "p9/main", "p2/main"), strict=True)
        for target, name in names:
            target["name"] = name

    with seen(browser, few) as page:
        changed(page, "**/overview.json", rename)
        changed(page, "**/status.json", rename)
        again(page)
        expect(page.locator(".card h2")).to_have_text(["p2/main", "p9/main", "p10/main"])


def test_the_page_of_another_release_is_loaded_once(browser: Browser, few: Server) -> None:
    with seen(browser, few) as page:
        changed(page, "**/overview.json", lambda document: document.update(page="another"))
        page.evaluate("window.mine = true")
        page.evaluate("refresh()")
        expect(page.locator("#verdict")).to_contain_text("well")
        assert page.evaluate("window.mine") is True  # it was loaded just now
        page.unroute("**/overview.json")
        page.evaluate("performance.now = () => 1e9")
        with page.expect_navigation():
            again(page)
        assert page.evaluate("window.mine") is None


def test_silence_is_dated_by_the_daemons_clock(browser: Browser, few: Server) -> None:
    with seen(browser, few) as page:
        page.route("**/*.json", lambda route: route.abort())
        again(page)
        expect(page.locator("#verdict")).to_contain_text(
            "No answer from the daemon since 2027-01-15T09:00:00Z"
        )


def test_page_shows_a_failed_read_and_the_last_result(browser: Browser, few: Server) -> None:
    error = "could not be read for 40 s"

    def late(document: dict[str, Any]) -> None:
        [target] = document["targets"]
        told = [*target["beside"]["document"]]
        torn = {**told[0], "name": "torn", "odd": "is no JSON", "version": None}
        found = CachedDocument(page_samples.BEGIN, [*told, torn], error)
        target["beside"] = found.to_json()

    with seen(browser, few, ONE) as page:
        expect(page.locator("dl").first).to_contain_text("version 4,710", timeout=60_000)
        changed(page, "**/status.json", late)
        again(page)
        known = page.locator("dl").first
        expect(known).to_contain_text(error)
        expect(known).to_contain_text("version 4,710")
        expect(known).to_contain_text("torn: its state is no JSON")


def test_a_batch_whose_object_is_damaged_is_shown_as_that(browser: Browser, few: Server) -> None:
    def damage(document: dict[str, Any]) -> None:
        batches = (document["document"] or {"batches": []})["batches"]
        for batch in batches[:1]:
            nothing = dict.fromkeys(("files", "rows", "bytes", "secs", "event_time"))
            batch.update(nothing, odd="its object of the journal is damaged")

    with seen(browser, few) as page:
        changed(page, "**/past.json", damage)
        page.evaluate(f"location.hash = '{ONE}'")
        expect(page.locator("#one")).to_contain_text(
            "its object of the journal is damaged", timeout=60_000
        )
        expect(page.locator("#one")).to_contain_text("rows in 59 batches")
