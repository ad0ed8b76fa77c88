"""State files of the other daemon, as the page shows them."""

from __future__ import annotations

import json

from blizzard_core.limits import SHOWN_STATE_BYTES
from blizzard_core.observability.peer_state import StateFiles, source_state_path, summarize_state
from blizzard_core.storage.protocol import Entry
from blizzard_py.state.source_state import checkpoint_path
from tests.support.memory_store import MemoryStorage


def test_a_state_file_is_read_again_only_once_it_has_changed() -> None:
    store = MemoryStorage()
    files = StateFiles(store)
    store.put_atomic("a", json.dumps({"txn_version": 4, "log": {"version": 9}}).encode())
    entry = Entry("a", 10, 1.0)
    [told] = files.look([entry]).values()
    assert (told["commits"], told["version"]) == (4, 9)
    store.delete("a")
    assert list(files.look([entry]).values()) == [told]
    assert list(files.look([Entry("a", 10, 2.0)]).values()) == [summarize_state({}, "is gone")]


def test_a_state_file_that_is_too_large_is_not_read() -> None:
    class Closed(MemoryStorage):
        def read(self, path: str) -> bytes:
            raise AssertionError(path)

    large = Entry("a", SHOWN_STATE_BYTES + 1, 1.0)
    assert list(StateFiles(Closed()).look([large]).items()) == [
        (large, summarize_state({}, f"has {large.size:,} bytes, too many to look into"))
    ]


def test_summary_of_a_state_omits_or_masks_invalid_fields() -> None:
    assert summarize_state({})["version"] is None
    odd = {
        "watermark": [],
        "totals": 3,
        "log": {"version": "x", "own_version": -1},
        "in_flight": {},
    }
    told = summarize_state({**odd, "blocked": {"s": 3}, "writer": {"process": {"host": 7}}})
    assert told["blocked"] == {"s": "?"}
    assert (told["host"], told["version"], told["in_flight"]) == (None, None, 0)


def test_both_daemons_mean_the_same_place_of_a_sources_state() -> None:
    assert source_state_path("events_main") == checkpoint_path("events_main")
