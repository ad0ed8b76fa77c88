"""Regular expressions that mean the same in each release of Python that is supported."""

from __future__ import annotations

import re

import pytest

from tests.support.scenario import ROOT

PACKAGES = ("blizzard_core", "blizzard_py", "penguin_py")
# Python before 3.11.5, which Debian 12 has, goes on where a repetition of such a group has failed
# in its middle. An atomic group in it goes back to where it began.
POSSESSIVE_GROUP = re.compile(r"[^)]\)[*+?]\+")


@pytest.mark.parametrize("package", PACKAGES)
def test_repeated_possessive_groups_are_atomic(package: str) -> None:
    odd = {
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in (ROOT / package).rglob("*.py")
        for found in POSSESSIVE_GROUP.finditer(path.read_text("utf-8"))
        if "does not backtrack" not in path.read_text("utf-8")[found.start() :][:40]
    }
    assert odd == set()
