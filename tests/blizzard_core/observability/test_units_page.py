"""The grid of work units on the status page, in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from blizzard_core.observability.status import Panel
from blizzard_core.observability.web import Server
from blizzard_py.slices.units.due import Terms
from blizzard_py.slices.units.grid import GridLayout
from blizzard_py.slices.units.schemes import partitions
from blizzard_py.slices.units.state import OpenUnit, UnitsState
from blizzard_py.slices.units.values import unit_list
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.state.source_state import KindState, SourceState
from tests.support.browser import chromium, visited
from tests.support.hostile_texts import HOSTILE

NOW = datetime(2020, 2, 22, 9, 30, tzinfo=UTC)
MONTHS = partitions(datetime(2019, 1, 1, tzinfo=UTC), NOW, "monthly")
TERMS = Terms(grace=timedelta(days=3))
FEBRUARY = "2020-02-01T00:00:00.000Z"
HIGH = "2020-02-21T00:00:00.000Z"
STATE = UnitsState(
    closed_to={
        "one": FEBRUARY,
        "two": "2019-12-01T00:00:00.000Z",
        "gone": "2019-03-01T00:00:00.000Z",
    },
    open={
        f"{FEBRUARY}/one": OpenUnit(high=HIGH),
        "2019-12-01T00:00:00.000Z/two": OpenUnit(
            failures=3, next_try="2020-02-22T10:00:00.000Z", error="503 from the API"
        ),
    },
)
LAYOUT = GridLayout(MONTHS, unit_list("id", "one,two"), TERMS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def activity() -> SourceActivity:
    found = SourceActivity("surveys/answers", "https://api.example", NOW.timestamp)
    units_of(found, STATE, LAYOUT)
    return found


def units_of(activity: SourceActivity, state: UnitsState, layout: GridLayout) -> None:
    """As a poll tells it."""
    activity.knows(SourceState(kind=KindState(units=state)))
    activity.units_planned(layout)


def panel(*activities: SourceActivity) -> Panel:
    return Panel("blizzard", activities, NOW.timestamp)


def test_units_are_drawn_by_time_and_value_with_sign_and_word(
    browser: Browser, activity: SourceActivity
) -> None:
    with Server("127.0.0.1:0", panel(activity)) as server, visited(browser, server.port) as visit:
        page = visit.page
        assert page.locator(".names div").all_inner_texts() == ["one", "two", "gone"]
        signs = {
            (node.get_attribute("class") or "").split()[1]: node.text_content()
            for node in page.locator(".grid text.sign").all()
        }
        assert signs == {"failing": "!", "new": "++", "incomplete": "/", "retired": "xx"}
        legend = page.locator(".legend").inner_text()
        for told in ("failing 1", "new 2", "incomplete 1", "done 24", "retired values 1"):
            assert told in legend
        assert page.locator(".axis").all_text_contents()[0].startswith("2019")
        assert page.locator("summary", has_text="1 unit failing").count() == 1


def test_a_unit_tells_of_itself_by_pointer_and_by_keyboard(
    browser: Browser, activity: SourceActivity
) -> None:
    with Server("127.0.0.1:0", panel(activity)) as server, visited(browser, server.port) as visit:
        told = visit.page.locator(".told")
        column = len(MONTHS) - 3  # December
        visit.page.locator(".grid svg").hover(position={"x": column * 16 + 8, "y": 18 + 16 + 8})
        expect(told).to_contain_text("failing 2019-12-01T00:00:00.000Z/two")
        expect(told).to_contain_text("failed 3 times, next try 2020-02-22T10:00:00.000Z")
        expect(told).to_contain_text("503 from the API")
        visit.page.keyboard.press("Tab")
        for _ in range(20):
            if visit.page.evaluate("document.activeElement.className") == "grid":
                break
            visit.page.keyboard.press("Tab")
        for key in ("ArrowUp", "End"):
            visit.page.keyboard.press(key)
        expect(told).to_contain_text(f"incomplete {FEBRUARY}/one · read up to {HIGH}")
        visit.page.keyboard.press("ArrowLeft")
        expect(told).to_contain_text(f"done 2020-01-01T00:00:00.000Z/one · read up to {FEBRUARY}")
        visit.page.keyboard.press("Home")
        expect(told).to_contain_text("done 2019-01-01T00:00:00.000Z/one")


def test_grid_position_and_focus_survive_a_redraw(
    browser: Browser, activity: SourceActivity
) -> None:
    with (
        Server("127.0.0.1:0", panel(activity)) as server,
        visited(browser, server.port, soon=True) as visit,
    ):
        frame = visit.page.locator(".grid")
        frame.focus()
        visit.page.keyboard.press("End")
        told = visit.page.locator(".told")
        expect(told).to_contain_text(f"incomplete {FEBRUARY}/one")
        over = OpenUnit(high="2020-02-22T09:30:00.000Z")
        units_of(activity, replace(STATE, open={**STATE.open, f"{FEBRUARY}/one": over}), LAYOUT)
        expect(told).to_contain_text(f"grace {FEBRUARY}/one · read up to", timeout=60_000)
        expect(frame).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_grid_of_thousands_scrolls_within_itself_on_a_phone(
    browser: Browser, scheme: Any
) -> None:
    activity = SourceActivity("surveys/answers", "https://api.example", NOW.timestamp)
    days = partitions(datetime(2019, 3, 1, tzinfo=UTC), NOW, "daily")
    names = [f"{'long-name-' * 9}{number}" for number in range(1000)]
    units_of(activity, UnitsState(), GridLayout(days, unit_list("id", names), TERMS))
    text = json.dumps(panel(activity).to_json())
    assert len(text) < 200_000
    phone = {"viewport": {"width": 375, "height": 812}, "color_scheme": scheme}
    with (
        Server("127.0.0.1:0", panel(activity)) as server,
        visited(browser, server.port, **phone) as visit,
    ):
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        assert page.locator(".grid *").count() < 150
        expect(page.locator(".card")).to_contain_text("And 940 values more.")
        frame = page.locator(".grid")
        # The newest are in sight.
        page.wait_for_function("document.querySelector('.grid').scrollLeft > 4000")
        assert frame.bounding_box() is not None
        assert page.locator(".names").evaluate("e => e.offsetWidth") < 180


def test_hostile_names_and_errors_are_shown_as_text(browser: Browser) -> None:
    activity = SourceActivity("surveys/answers", "https://api.example", NOW.timestamp)
    names = [text for text in HOSTILE if text.strip() and "\udc80" not in text]
    state = UnitsState(
        open={f"{FEBRUARY}/{name}": OpenUnit(failures=1, error=name[:200]) for name in names}
    )
    values = [{"id": name} for name in names]
    units_of(activity, state, GridLayout(MONTHS, values, TERMS))
    with Server("127.0.0.1:0", panel(activity)) as server, visited(browser, server.port) as visit:
        assert visit.page.locator(".names div").count() == len(names)
        assert visit.page.locator("#targets script, #targets img").count() == 0
        visit.page.locator("summary", has_text="units failing").click()
        assert not re.search(r"[\u202e\x1b]", visit.text())


def test_sources_without_units_have_no_grid(browser: Browser) -> None:
    activity = SourceActivity("events/main", "s3://raw", NOW.timestamp)
    assert activity.to_json()["units"] is None
    with Server("127.0.0.1:0", panel(activity)) as server, visited(browser, server.port) as visit:
        assert "UNITS BY TIME" not in visit.text().upper()


def test_the_grid_is_drawn_only_when_visible_and_changed() -> None:
    now = NOW.timestamp()
    activity = SourceActivity("surveys/answers", "https://api.example", lambda: now)
    units_of(activity, STATE, LAYOUT)
    first = activity.to_json()["units"]
    now += 59
    assert activity.to_json()["units"] is first
    now += 1
    again = activity.to_json()["units"]
    assert again is not first
    assert again == first
    now = datetime(2020, 2, 22, 10, tzinfo=UTC).timestamp()  # the pause is over
    assert activity.to_json()["units"]["notes"][0]["low"] is not None
