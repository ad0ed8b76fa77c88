"""Tests of records go through both paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blizzard_py.formats.ndjson import parse
from blizzard_py.formats.ndjson.fast import sandbox


@pytest.fixture(params=["fast", "exact"], scope="module")
def both_paths(request: pytest.FixtureRequest) -> Iterator[str]:
    """Lines go the fast path as far as they are certain; then, as if it could not be loaded."""
    assert sandbox.compiled() is not None
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "exact":
            patch.setattr(parse, "scanner", lambda *_: None)
        yield request.param
