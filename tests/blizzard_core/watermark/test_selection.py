"""Ranges and jumps of patterns: they show every name that the test takes, at few requests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.storage.protocol import order_key
from blizzard_core.storage.ranges import Ranges, folder_of, name_after, name_before
from blizzard_core.watermark.name_range import LAST, NameRange
from blizzard_core.watermark.selection import NameSelection
from blizzard_py.sources.files.listing import listing_within
from tests.support.memory_store import MemoryStorage

# Beyond the surrogates UTF-16 sorts otherwise than UTF-8.
NAMES = st.sampled_from(
    ["a", "b", "ab", "a-", "a.b", "0", "~", "é", "\ue000", "\U0001f600", "tmp", "%2F", "d=1", "d=2"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
COMPONENTS = st.one_of(
    NAMES, st.sampled_from(["**", "*", "a*", "*b", "d=?", "[ad]*", "{a,b}", "d={1..2}", "é*", "?"])
)
PATTERNS = st.lists(COMPONENTS, min_size=1, max_size=4).map("/".join)
SELECTIONS = st.builds(
    NameSelection,
    st.lists(PATTERNS, max_size=3).map(tuple),
    st.lists(PATTERNS, max_size=2).map(tuple),
)


@given(selection=SELECTIONS, paths=st.lists(PATHS, max_size=30))
def test_ranges_hold_every_name_that_matches(selection: NameSelection, paths: list[str]) -> None:
    cover = selection.ranges()
    for path in filter(selection.takes, paths):
        assert cover is None or cover.has_file(order_key(path))
    ends = [end for gap in (cover or Ranges(())).ranges for end in (gap.after, gap.until or LAST)]
    keys = [order_key(end) for end in ends]
    assert keys == sorted(keys)


@given(selection=SELECTIONS, paths=st.lists(PATHS, unique=True, max_size=30), data=st.data())
def test_jumps_pass_no_name_that_matches(
    selection: NameSelection, paths: list[str], data: st.DataObject
) -> None:
    here = data.draw(PATHS)
    jump = selection.jump_from(here)
    if jump is None:
        return
    assert not selection.takes(here)
    for path in filter(selection.takes, paths):
        assert order_key(path) < order_key(here) or order_key(path) > order_key(jump)


@given(
    selection=SELECTIONS,
    paths=st.lists(PATHS, unique=True, max_size=40),
    ends=st.tuples(PATHS, st.one_of(st.none(), PATHS)),
    page_keys=st.sampled_from([1, 3, 100]),
)
def test_listing_yields_every_selected_name_in_order(
    selection: NameSelection, paths: list[str], ends: tuple[str, str | None], page_keys: int
) -> None:
    storage = MemoryStorage()
    storage.page_keys = page_keys
    storage.objects = dict.fromkeys(paths, (b"", 0.0))
    listing = listing_within(storage, NameRange(), selection, lambda _path: True)
    listed = [entry.path for page in listing.list_range(*ends) for entry in page.entries]
    low, high = order_key(ends[0]), None if ends[1] is None else order_key(ends[1])
    inside = [p for p in paths if low < order_key(p) and (high is None or order_key(p) < high)]
    assert listed == sorted(set(listed), key=order_key)
    assert set(filter(selection.takes, inside)) <= set(listed) <= set(inside)


def requests_of(selection: NameSelection, names: Iterable[str]) -> tuple[int, int]:
    """Return the requests of a listing of everything, and how many names are taken."""
    storage = MemoryStorage()
    storage.page_keys = 100
    storage.objects = dict.fromkeys(names, (b"", 0.0))
    listing = listing_within(storage, NameRange(), selection, lambda _path: True)
    pages = list(listing.list_range("", None))
    taken = [e for page in pages for e in page.entries if selection.takes(e.path)]
    return sum(page.requests for page in pages), len(taken)


TENANTS = [
    f"tenant={tenant}/date=2026-01-{day:02}/{number:02}"
    for tenant in range(8)
    for day in range(1, 13)
    for number in range(30)
]


@pytest.mark.parametrize(
    ("include", "exclude", "most", "files"),
    [
        (["tenant=7/**"], [], 4, 360),
        (["tenant=7/date=2026-01-1?/*"], [], 1, 90),
        (["tenant={0,7}/date=2026-01-05/**"], [], 2, 60),
        (["*/date=2026-01-06/*"], [], 17, 240),
        (["tenant=3/date=2026-01-05/{00..29}"], [], 1, 30),
        ([], ["tenant=[0-3]/**", "tenant=6/**"], 24, 3 * 360),
        (["tenant=1/**"], ["tenant=1/date=2026-01-0?/**"], 4, 90),
    ],
)
def test_selection_costs_pages_of_what_it_selects(
    include: list[str], exclude: list[str], most: int, files: int
) -> None:
    found, taken = requests_of(NameSelection(tuple(include), tuple(exclude)), TENANTS)
    assert (taken, found <= most) == (files, True), found


def test_reason_names_the_pattern_that_excludes() -> None:
    selection = NameSelection(("a/**",), ("**/tmp/**", "a/{x,y}"))
    assert selection.excluded_by("a/tmp/1") == "**/tmp/**"
    assert selection.excluded_by("a/y") == "a/{x,y}"
    assert selection.excluded_by("a/z") is None
    assert not selection.is_included("b")
    assert NameSelection(("a/**", "*/b", "**/c", "*.d")).broadest() == ["*/b"]


@given(text=st.text("a~\0\ud7ff\ue000\U0010ffff/", min_size=1, max_size=4))
def test_neighbours_of_a_beginning(text: str) -> None:
    after = name_after(text)
    assert after is None or order_key(f"{text}\U0010ffff\U0010ffff") < order_key(after)
    assert order_key(name_before(text)) < order_key(text)


@pytest.mark.parametrize(
    ("after", "until", "folder"),
    [
        ("", None, ""),
        ("a/", "a0", "a/"),
        ("a/b/x", "a/b/y", "a/b/"),
        ("a/b/x", "a/c", "a/"),
        ("a/b", "c", ""),
        ("a/b/x", None, ""),
        ("a/b.~", "a/b0", "a/"),
    ],
)
def test_range_within_a_folder_is_listed_with_its_prefix(
    after: str, until: str | None, folder: str
) -> None:
    assert folder_of(after, until) == folder
