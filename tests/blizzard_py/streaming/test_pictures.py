"""The pictures of docs/reference/event-time.md are of what streams do today.

That real streams do as the oracle, from which they are drawn, is tested beside.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.event_time_picture import pictures

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pictures_are_those_of_the_oracle() -> None:
    for name, text in pictures().items():
        assert (DOCS / name).read_text() == text, f"draw {name} again (its module says how)"
