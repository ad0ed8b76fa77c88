"""The operations guide against the code: every event is listed, every listed event is logged."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception"}


def logged() -> dict[str, set[str]]:
    """Event to its levels, from every call that looks like one of a logger."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in ("blizzard_core", "blizzard_py", "penguin_py"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=owner, attr=level),
                        args=[ast.Constant(value=str(event)), *_],
                    ) if level in LEVELS and re.search(r"log(ger\(.*\))?$", ast.unparse(owner)):
                        found[event].add("error" if level == "exception" else level)
    return found


def listed() -> dict[str, set[str]]:
    text = (ROOT / "docs/reference/log-events.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", text, re.MULTILINE)
    return {event: set(levels.split(", ")) for event, levels in rows}


def test_listed_events_are_exactly_the_logged_ones_with_levels() -> None:
    assert listed() == logged(), "docs/reference/log-events.md"


def test_events_are_names_and_not_sentences() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", event) for event in logged())


def test_the_search_for_events_finds_them() -> None:
    assert len(logged()) > 30
    assert logged()["worker_crashed"] == {"error"}
    assert logged()["late_file"] == {"warning"}


@pytest.mark.parametrize("name", ["status-page", "units-page"])
def test_the_picture_is_there_and_small(name: str) -> None:
    picture = ROOT / "docs" / f"{name}.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size < 200_000
