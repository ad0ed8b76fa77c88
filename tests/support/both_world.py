"""A source in memory of which files are requested, with replays of its letters beside it."""

from __future__ import annotations

from tests.blizzard_py.replay.test_replay import ReplayWorld
from tests.support.request_world import RequestWorld


class BothWorld(ReplayWorld, RequestWorld):
    """A live source that is up to date, and whose grace is over."""
