"""The page of many sources, of one, and of a file's story: over HTTP, and in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from blizzard_core.limits import STORY_CHARACTERS
from blizzard_core.observability import other_page
from blizzard_core.observability.background_cache import BackgroundCache
from blizzard_core.observability.status import Command, PageProviders, Panel
from blizzard_core.observability.status_page import ResponseCache
from blizzard_core.observability.web import Server
from blizzard_core.storage.clock import elapsed
from blizzard_core.text import printable, shell_word
from tests.chaos.keyed.delta import KeyedWorld, keyed_table
from tests.chaos.keyed.every_request import table
from tests.support import page_samples
from tests.support.browser import chromium, redraw_soon
from tests.support.hostile_texts import HOSTILE
from tests.support.http_answer import Answer
from tests.support.table_harness import footer_pool

ONE = "#/target/orders-00/america"
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def many() -> Iterator[Server]:
    """300 sources."""
    panel = page_samples.panel(300)
    with panel.providers.open(), Server("127.0.0.1:0", panel) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def seen(
    browser: Browser, server: Server, place: str = "", *, soon: bool = False, **context: Any
) -> Iterator[Page]:
    """A page that behaves: no complaint, nothing asked of anybody else."""
    with browser.new_context(**context) as opened:
        page = opened.new_page()
        if soon:
            redraw_soon(page)
        complaints: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        origin = f"http://127.0.0.1:{server.port}/"
        page.goto(f"{origin}{place}")
        expect(page.locator("#verdict")).not_to_contain_text("Asking", timeout=60_000)
        yield page
        assert complaints == []
        assert [url for url in requests if not url.startswith((origin, "data:"))] == []


def sideways(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


# Over HTTP.


def test_an_overview_is_short_and_made_once_a_second(many: Server) -> None:
    body = Answer(many.port, "/overview.json").body
    assert len(json.loads(body)["targets"]) == 300
    assert len(body) < 500_000
    made: list[int] = []
    clock = page_samples.Clock()
    prepared = ResponseCache(clock)
    for clock.now in (10.0, 10.5, 10.9, 11.1):
        prepared.get("x", lambda: made.append(1))
    assert len(made) == 2


def test_targets_that_are_not_there_are_not_found(many: Server) -> None:
    for path in ("status", "past"):
        assert Answer(many.port, f"/targets/orders-00/asia/{path}.json").status == 200
        for name in ("nobody", "..%2f..%2fetc%2fpasswd", "%00", "orders-00/asia/"):
            assert Answer(many.port, f"/targets/{name}/{path}.json").status == 404
    bare = Panel("blizzard", [], lambda: 0.0)
    with Server("127.0.0.1:0", bare) as server:
        assert Answer(server.port, "/story.json?uri=s3://x/y").status == 404


def test_all_that_is_new_has_strict_headers_and_is_for_reading(many: Server) -> None:
    for path in ("/overview.json", "/targets/orders-00/asia/past.json", "/story.json?uri=a"):
        headers = Answer(many.port, path).headers
        assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        for method in ("POST", "PUT", "DELETE"):
            assert Answer(many.port, path, method).status == 405


def test_a_question_is_bounded_in_length_and_in_who_asks(many: Server) -> None:
    assert Answer(many.port, "/story.json").status == 400
    assert Answer(many.port, f"/story.json?uri={'x' * STORY_CHARACTERS}").status == 200
    assert Answer(many.port, f"/story.json?uri={'x' * (STORY_CHARACTERS + 1)}").status == 400
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert Answer(many.port, "/story.json?uri=s3://x/y", **foreign).status == 403


def test_server_answers_429_when_too_many_requests_wait() -> None:
    panel = page_samples.panel(1)
    with Server("127.0.0.1:0", panel) as server:  # nobody answers: the providers is closed
        statuses = [Answer(server.port, f"/story.json?uri={n}").status for n in range(4)]
        assert statuses == [200, 200, 429, 429]
        assert Answer(server.port, "/health").status == 200


# In the browser.


def test_hundreds_of_sources_take_two_screens_worst_first(browser: Browser, many: Server) -> None:
    with seen(browser, many, viewport={"width": 1920, "height": 970}) as page:
        tiles = page.locator(".tile")
        expect(tiles).to_have_count(300)
        assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 970
        levels = [
            (c or "").split()[1] for c in tiles.evaluate_all("all => all.map(t => t.className)")
        ]
        assert levels == sorted(levels, key=["bad", "warn", "ok"].index)
        assert "7 of 300 sources failing" in page.inner_text("#verdict")
        # What many say is said once.
        assert page.locator("#verdict .notice").count() <= 6
        assert page.inner_text("#verdict").count("ExpiredToken") == 1


def test_a_search_by_name_or_problem_has_a_link(browser: Browser, many: Server) -> None:
    with seen(browser, many) as page:
        page.keyboard.press("/")
        page.keyboard.type("prices europe")
        expect(page.locator(".tile")).to_have_count(7)
        assert "q=prices+europe" in page.url
        with seen(browser, many, page.url.rpartition("/")[2].join(["#/", ""])) as other:
            expect(other.locator(".tile")).to_have_count(7)
        page.fill("#find", "ExpiredToken")
        expect(page.locator(".tile")).to_have_count(4)
        page.fill("#find", "no such thing")
        expect(page.locator("#targets")).to_contain_text("No source like that.")
        page.fill("#find", "")
        page.locator("#levels button", has_text="Failing").click()
        expect(page.locator(".tile")).to_have_count(7)


def test_an_answer_that_comes_after_a_search_does_not_undo_it(
    browser: Browser, many: Server
) -> None:
    with seen(browser, many) as page:
        expect(page.locator(".tile")).to_have_count(300)
        shown = page.evaluate(
            """async () => {
              const asks = window.fetch, all = await (await asks("overview.json")).json();
              let answer;
              window.fetch = () => new Promise(give => { answer = give; });
              refresh();
              go({q: "prices europe"});
              window.fetch = asks;
              answer({ok: true, text: async () => JSON.stringify(all)});
              await new Promise(next => setTimeout(next));
              return document.querySelectorAll(".tile").length;
            }"""
        )
        assert shown == 7


def test_keyboard_focus_survives_a_redraw(browser: Browser, many: Server) -> None:
    with seen(browser, many, soon=True) as page:
        tile = page.locator(".tile").nth(20)
        tile.focus()
        with page.expect_response("**/overview.json", timeout=60_000):
            pass
        page.wait_for_timeout(200)
        expect(tile).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#crumb")).to_contain_text("All sources")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["", ONE, "#/file/s3%3A%2F%2Fraw%2Fx%2Fy.json"])
def test_nothing_scrolls_sideways_on_a_phone(
    browser: Browser, many: Server, place: str, scheme: Any
) -> None:
    with seen(browser, many, place, color_scheme=scheme, **PHONE) as page:
        expect(page.locator(".tile, .commands").first).to_be_visible(timeout=60_000)
        assert sideways(page) == 0


def test_no_sources_and_a_few(browser: Browser) -> None:
    for count, said in (
        (0, "There is no source in the configuration"),
        (3, "All 3 sources are well"),
    ):
        panel = page_samples.panel(count, trouble=False)
        with Server("127.0.0.1:0", panel) as server, seen(browser, server) as page:
            expect(page.locator("#verdict")).to_contain_text(said)
            expect(page.locator(".card")).to_have_count(count)
            expect(page.locator("#views button")).to_have_count(0)


def test_a_few_can_be_lines_as_well(browser: Browser) -> None:
    panel = page_samples.panel(5)
    with Server("127.0.0.1:0", panel) as server, seen(browser, server) as page:
        expect(page.locator(".card")).to_have_count(5)
        page.locator("#views button", has_text="Compact").click()
        expect(page.locator(".tile")).to_have_count(5)


def test_a_source_page_has_history_penguin_and_commands(browser: Browser, many: Server) -> None:
    with seen(browser, many, ONE) as page:
        expect(page.locator(".sheet tbody tr")).to_have_count(169, timeout=60_000)
        text = page.inner_text("#one")
        assert "version 4,710" in text
        assert "none yet" in text
        assert "line 7: no JSON" in text
        assert "a restart loses nothing of it" in text
        expect(page).to_have_title("! orders-00/america · Blizzard")
        # Times are those of the log, so they can be looked for there.
        times = page.locator("time.mono").all_text_contents()
        assert times
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each) for each in times)
        page.locator("#one a", has_text="broken.ndjson.gz").last.click()
        expect(page.locator("#verdict")).to_contain_text("Ingested", timeout=60_000)
        page.go_back()
        expect(page.locator("#verdict")).to_contain_text("orders-00/america", timeout=60_000)


def test_letters_are_grouped_by_reason_with_sample_and_command(
    browser: Browser, many: Server
) -> None:
    with seen(browser, many, ONE) as page:
        first = page.locator(".letters > li").first
        expect(first).to_contain_text("parse: line 7, column amount", timeout=60_000)
        expect(first.locator(".sample")).to_have_text(
            'line 7: {"id": 4711, "amount": "n/a", "city": "<Köln>"}'
        )
        command = first.locator("code").inner_text()
        assert command.endswith("--stage parse --reason 'is not a valid decimal' --dry-run")
        expect(page.locator("#one")).to_contain_text("Of the newest 50 of 61 objects.")


def test_partitions_are_a_grid_and_a_table_of_links(browser: Browser, many: Server) -> None:
    with seen(browser, many, ONE, **PHONE) as page:
        cells = page.locator(".cells a")
        expect(cells).to_have_count(48, timeout=60_000)
        worst = cells.nth(40)
        label = "date=2027-01-15/hour=16: 2 rejected, 80 ingested"
        expect(worst).to_have_attribute("aria-label", label)
        expect(worst).to_have_text("✖")
        page.locator("summary", has_text="48 partitions as a table").click()
        row = page.get_by_role("row", name="2027-01-15/hour=16")
        expect(row).to_contain_text("80")
        assert sideways(page) == 0
        worst.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#verdict")).to_contain_text("Ingested", timeout=60_000)
        assert "rejected.json" in page.inner_text("#one")


def test_the_overview_shows_a_day_or_a_week_by_hours(browser: Browser, many: Server) -> None:
    with seen(browser, many) as page:
        page.locator("#spans button", has_text="24 h").click()
        expect(page.locator(".key")).to_contain_text("in the last 24 h")
        assert "span=day" in page.url
    with seen(browser, many, "#/?q=prices&span=week&view=cards") as page:
        expect(page.locator(".key")).to_contain_text("in the last 7 days")
    with seen(browser, many, ONE) as page:
        week = page.get_by_role("img", name="rows per hour over the last 7 days")
        expect(week).to_have_count(1, timeout=60_000)


def test_tables_are_shown_as_penguin_saved_them(browser: Browser, many: Server) -> None:
    with seen(browser, many) as page:
        others = page.locator("#others")
        expect(others).to_contain_text("Tables, as Penguin saved them", timeout=60_000)
        expect(others.get_by_role("row", name="orders")).to_contain_text("runs")
        expect(others).to_contain_text("4,710")


def test_both_daemons_are_one_page_at_one_address(browser: Browser) -> None:
    tables = page_samples.penguin_panel()
    penguin = Server("127.0.0.1:0", tables)
    blizzard = page_samples.panel(3, trouble=False, penguin_page=f"127.0.0.1:{penguin.port}")
    with blizzard.providers.open(), Server("127.0.0.1:0", blizzard) as server:
        with tables.providers.open(), penguin:
            for path in ("overview.json", "targets/stock/status.json", "metrics", "health"):
                found = Answer(server.port, f"/penguin/{path}")
                assert found.status == 200
                assert found.headers["X-Frame-Options"] == "DENY"
            for path in ("story.json?uri=x", "x", "..%2fstatus.json", "targets//status.json"):
                assert Answer(server.port, f"/penguin/{path}").status == 404
            assert Answer(server.port, "/penguin/status.json", "POST").status == 405
            with seen(browser, server) as page:
                verdict = page.locator("#verdict")
                expect(verdict).to_contain_text("All 5 sources and tables are well")
                expect(page.locator("#targets .card")).to_have_count(3)
                expect(page.locator("#others .card")).to_have_count(2)
                page.locator("#others a", has_text="stock").click()
                expect(verdict).to_contain_text("stock: well", timeout=60_000)
                assert "/penguin/#/target/stock" in page.url
                page.locator("#crumb a").click()
                expect(page.locator("#others .card")).to_have_count(2)
            with seen(browser, server, "penguin/") as page:
                expect(page.locator("#others .card")).to_have_count(2, timeout=60_000)
        with browser.new_context() as opened:
            page = opened.new_page()  # the browser itself complains of a 502
            page.goto(f"http://127.0.0.1:{server.port}/")
            expect(page.locator("#verdict")).to_contain_text("Penguin does not answer")
            expect(page.locator("#targets .card")).to_have_count(3)


def test_a_keyed_table_shows_how_far_it_is(browser: Browser, tmp_path: Path) -> None:
    with footer_pool() as pool:
        keyed = keyed_table(str(tmp_path), ("id",), ("seq",), deletes_text="op = 'd'", every=60.0)
        world = KeyedWorld(keyed, pool)
        world.append(table((1, 5, "u", "a"), (2, 5, "u", "b"), (None, 5, "u", "c")))
        penguin = world.penguin(is_patient=True)
        world.run(penguin)
        panel = Panel("penguin", [penguin.activity], lambda: world.now)
        with Server("127.0.0.1:0", panel) as server, seen(browser, server, soon=True) as page:
            card = page.locator(".card")
            expect(card).to_contain_text("2 · merged up to version 0 of the changes, up to date")
            expect(card).to_contain_text("2 new, 0 changed, 0 deleted, 0 older, 0 tied, 1 without")
            world.append(table((1, 6, "u", "A")))
            world.run(penguin)  # too early for a merge
            expect(card).to_contain_text("of the changes, 1 version behind · oldest change")


def test_too_large_answers_of_penguin_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server("127.0.0.1:0", page_samples.penguin_panel()) as penguin:
        blizzard = page_samples.panel(1, penguin_page=f"127.0.0.1:{penguin.port}")
        with Server("127.0.0.1:0", blizzard) as server:
            assert Answer(server.port, "/penguin/status.json").status == 200
            monkeypatch.setattr(other_page, "OTHER_PAGE_BYTES", 100)
            found = Answer(server.port, "/penguin/status.json")
            assert found.status == 502
            assert "Penguin does not answer" in found.body
            assert Answer(server.port, "/overview.json").status == 200


def test_a_query_over_event_time_has_its_course(browser: Browser, many: Server) -> None:
    with seen(browser, many, f"#/target/{page_samples.WINDOWED}") as page:
        expect(page.locator(".chart.course")).to_have_count(1, timeout=60_000)
        text = page.locator(".chart.course").inner_text()
        assert "watermark 2027-01-15T08:" in text
        assert re.search(r"newest event +15 min ahead", text)
        # Batches before the first watermark are left out; each of the others is a step.
        for line in ("watermark", "newest"):
            points = page.locator(f".course polyline.{line}").get_attribute("points") or ""
            assert len(points.split()) == 2 * 51
        labels = page.locator(".chart.rows .label").all_inner_texts()
        assert any("40 rows of state: open windows and keys" in each for each in labels)
        assert any("12 late rows in 60 batches" in each for each in labels)
        lateness = page.locator(".chart.lateness")
        assert "300K rows by how far behind they came" in lateness.inner_text()
        assert "99 % up to 60 s, 99.9 % up to 5 min" in lateness.inner_text()
        told = lateness.locator("svg").get_attribute("aria-label") or ""
        assert "up to 60 s 4,800, up to 5 min 1,140, more than 5 min 60" in told
        operators = page.get_by_role("region", name="Operators").inner_text()
        assert re.search(r"stateStoreSave\s+40\s+2.0 MB\s+31\s+6\s+0", operators)
    with seen(browser, many, ONE) as page:
        expect(page.locator(".sheet tbody tr")).to_have_count(169, timeout=60_000)
        expect(page.locator(".course")).to_have_count(0)


def test_page_reports_a_source_that_does_not_exist(browser: Browser, many: Server) -> None:
    with browser.new_context() as opened:
        page = opened.new_page()  # the browser itself complains of a 404
        page.goto(f"http://127.0.0.1:{many.port}/#/target/nobody/%E0%A4%A")
        expect(page.locator("#verdict")).to_contain_text("There is no nobody", timeout=60_000)


def test_a_pasted_uri_is_a_question(browser: Browser, many: Server) -> None:
    with seen(browser, many) as page:
        page.fill("#find", " s3://raw/orders-00/asia/date=2027-01-15/a b.json ")
        expect(page.locator(".tile")).to_have_count(300)
        page.keyboard.press("Enter")
        expect(page.locator("#verdict")).to_contain_text("Ingested", timeout=60_000)
        assert "committed in version 4,702" in page.inner_text("#one")
        assert re.search(r"No column\s+for device, <b>os</b>", page.inner_text("#one"))
        assert re.search(r"Added since\s+price", page.inner_text("#one"))
        page.locator("#one a", has_text="orders-00/asia").click()
        expect(page.locator("#crumb")).to_contain_text("orders-00/asia")
        page.locator("#crumb a").click()
        expect(page.locator(".tile")).to_have_count(300)
        page.fill("#find", "raw/no-source/x.json")  # as a shell has it
        page.keyboard.press("Enter")
        expect(page.locator("#verdict")).to_contain_text("Ingested", timeout=60_000)


def test_a_command_is_copied_as_it_is(browser: Browser) -> None:
    odd = f"blizzard explain  {shell_word('a  b')} {shell_word('x' + chr(27) + '[201~')}"
    panel = page_samples.panel(
        1, providers_=PageProviders(commands=lambda _target: [Command("why", odd)])
    )
    with Server("127.0.0.1:0", panel) as server:
        origin = f"http://127.0.0.1:{server.port}"
        with browser.new_context() as opened:
            opened.grant_permissions(["clipboard-read"], origin=origin)
            page = opened.new_page()
            page.goto(f"{origin}/#/target/{page_samples.names(1)[0]}")
            page.locator(".command button").click()
            expect(page.locator(".command button")).to_have_text("Copied")
            assert page.evaluate("navigator.clipboard.readText()") == odd


def test_hostile_text_is_text_wherever_it_is_shown(browser: Browser) -> None:
    clock = page_samples.Clock()
    world = page_samples.providers(clock)

    def read_story(uri: str) -> dict[str, Any]:
        text = "".join(HOSTILE)
        return {**page_samples.story(uri), "reason": text, "source": None, "partition": text}

    def past(name: str) -> dict[str, Any]:
        found = page_samples.past(name, clock)
        failed = [
            {**found["failed"][0], "path": text, "uri": text, "error": text} for text in HOSTILE
        ]
        [group, _] = found["letters"]["groups"]
        [cell] = found["partitions"]["list"][:1]
        return {
            **found,
            "failed": failed,
            "letters": {
                **found["letters"],
                "groups": [
                    {**group, "error": text, "files": [text], "sample": {"line": 1, "text": text}}
                    for text in HOSTILE
                ],
            },
            "partitions": {"more": 0, "list": [{**cell, "name": text} for text in HOSTILE]},
            "commits": [{**found["commits"][0], "ours": "".join(HOSTILE)}],
        }

    def lookups(read: Any) -> BackgroundCache:
        return BackgroundCache("hostile", read, clock, elapsed, 9)

    providers = replace(world, story=lookups(read_story), history=lookups(past))
    panel = page_samples.panel(1, providers_=providers)
    with panel.providers.open(), Server("127.0.0.1:0", panel) as server:
        with seen(browser, server, f"#/target/{page_samples.names(1)[0]}") as page:
            expect(page.locator(".sheet")).not_to_have_count(0, timeout=60_000)
            shown = page.inner_text("#one")
            for text in HOSTILE:
                assert " ".join(printable(text).split()) in " ".join(shown.split())
            assert page.locator("#one script, #one img").count() == 0
        for text in HOSTILE:
            if "\udc80" in text or not text.strip():
                continue
            with seen(browser, server) as page:
                page.evaluate("text => { location.hash = storyLink(text); }", f"s3://x/{text}")
                expect(page.locator("#verdict")).to_contain_text("Ingested", timeout=60_000)
                assert page.locator("#one script, #one img").count() == 0
