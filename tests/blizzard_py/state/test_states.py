"""Every format that a state was ever stored in: real documents of each release are understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import JOURNAL_FOLDER
from penguin_py.memory.state import NOTHING_SEEN, committed, mirror_from_json, mirror_to_json
from tests.support.memory_store import MemoryStorage

STATES = Path(__file__).parents[2] / "data" / "states"
BLIZZARD = STATES / "blizzard"
PENGUIN = STATES / "penguin"
CHECKPOINTS = sorted(path for path in BLIZZARD.glob("*/*.json") if path.stem != "journal")
JOURNALS = sorted(BLIZZARD.glob("*/journal.json"))
MIRRORS = sorted(PENGUIN.glob("*/mirror.json"))
COMMITS = sorted(PENGUIN.glob("*/commit.json"))

# What was known when the document was written: phases and files in flight, tries, what waits
# in the queue, names in grace, the floors, segments of a set, counted batches.
TOLD = {
    "0-original/global": "1 partitions, 0 in grace, 0 rows, floor date=2024-01-28",
    "0-original/initial": "0 partitions, 0 in grace, 0 rows",
    "0-original/partitions": "2 partitions, 0 in grace, 0 rows",
    "1-first/publishing": "2 partitions, 3 in grace, 4 rows, publishing odd, c tried 1",
    "1-first/running": "2 partitions, 4 in grace, 6 rows, running c, c tried 1",
    "2-timelines/floor": "2 partitions, 0 in grace, 18 rows, floor region=us/date=2024-01-27",
    "2-timelines/retries": "2 partitions, 1 in grace, 6 rows, publishing c, c tried 2",
    "2-timelines/running": "2 partitions, 1 in grace, 6 rows, running c, c tried 2",
    "2-timelines/set": "1 partitions, 0 in grace, 10 rows, floor date=2024-01-27, 10 in set",
    "3-two-batches/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "4-bad-records/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "5-scans/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "5-scans/floor": (
        "2 partitions, 0 in grace, 18 rows, floor region=us/date=2024-01-27, 27 in ledger"
    ),
    "5-scans/publishing": "2 partitions, 3 in grace, 4 rows, publishing odd, c tried 1",
    "5-scans/queue": "2 partitions, 0 in grace, 6 rows, publishing 0, 0 queued, 14 in ledger",
    "5-scans/set": "1 partitions, 0 in grace, 9 rows, floor date=2024-01-27, 10 in set",
    "5-scans/window": "1 partitions, 0 in grace, 2001 rows",
    "6-names/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "6-names/set": (
        "1 partitions, 0 in grace, 9 rows, floor date=2024-01-27, 10 in set, 14 in ledger"
    ),
    "7-heads/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "7-heads/floors": (
        "4 partitions, 0 in grace, 18 rows, "
        "floor region=eu/date=2024-01-27, floor region=us/date=2024-01-27, 27 in ledger"
    ),
    "7-heads/publishing": "2 partitions, 3 in grace, 4 rows, publishing odd, c tried 1",
    "7-heads/queue": "2 partitions, 0 in grace, 6 rows, publishing 0, 0 queued, 14 in ledger",
    "7-heads/running": "2 partitions, 4 in grace, 5 rows, running c, c tried 1",
    "7-heads/set": (
        "1 partitions, 0 in grace, 9 rows, floor date=2024-01-27, 10 in set, 14 in ledger"
    ),
    "7-heads/window": "1 partitions, 0 in grace, 2001 rows",
    "8-last/idle": "1 partitions, 3 in grace, 3 rows",
}


def document(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def named(path: Path) -> str:
    return str(path.relative_to(STATES))


def told(state: SourceState) -> str:
    progress = state.progress
    flying = [f"{one.phase} {'+'.join(stem(e.path) for e in one.files)}" for one in state.in_flight]
    tries = [f"{stem(path)} tried {retry.count}" for path, retry in state.retries.items()]
    queued = [f"{stem(entry.path)} queued" for entry in state.queue]
    grace = sum(len(known.done) for known in progress.partitions.values())
    floors = [f"floor {floor}" for floor in (progress.floor, *progress.floors.values()) if floor]
    segments = [f"{one.count} in set" for one in state.processed or ()]
    folded = [f"{one.count} in ledger" for one in state.ledger]
    counts = f"{len(progress.partitions)} partitions, {grace} in grace, {state.totals.rows} rows"
    return ", ".join([counts, *flying, *tries, *queued, *floors, *segments, *folded])


def stem(path: str) -> str:
    return Path(path).stem


@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_a_checkpoint_of_each_release_says_what_it_said(path: Path) -> None:
    state = state_from_json(document(path), named(path))
    assert told(state) == TOLD[f"{path.parent.name}/{path.stem}"]


@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_what_is_saved_of_it_is_read_as_the_same(path: Path) -> None:
    saved = again(document(path))
    assert again(saved) == saved
    # What today's release writes comes back as it was, but for names that the journal has.
    if path.parent == CHECKPOINTS[-1].parent and path.stem != "window":
        assert saved == {k: v for k, v in document(path).items() if k != "writer"}


def again(document: dict[str, Any]) -> dict[str, Any]:
    state = state_from_json(document, "x")
    found: dict[str, Any] = json.loads(json.dumps(state_to_json(state, state.last_update_ts or 0)))
    return found


@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_a_wrong_value_anywhere_in_it_is_refused_with_its_place(path: Path) -> None:
    """No value of a checkpoint is taken over unchecked, but for what the first ones had more."""
    for place, changed in wrong(document(path)):
        if place.startswith("passed.") and not place.startswith("passed.queue"):
            continue
        with pytest.raises(StateError) as caught:
            state_from_json(changed, "s3://b/state.json")
        assert str(caught.value).startswith("s3://b/state.json: "), place


def wrong(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """The document once for each value in it, with an object where that value was."""
    if isinstance(value, dict):
        return [
            (told, {**value, key: changed})
            for key, item in value.items()
            for told, changed in wrong(item, f"{place}.{key}".removeprefix("."))
        ]
    if isinstance(value, list):
        return [
            (told, [*value[:at], changed, *value[at + 1 :]])
            for at, item in enumerate(value)
            for told, changed in wrong(item, f"{place}[{at}]")
        ]
    return [(place, {"surprise": 1})]


@pytest.mark.parametrize("path", JOURNALS, ids=named)
def test_a_journal_entry_of_each_release_says_what_became_of_files(path: Path) -> None:
    storage = MemoryStorage("mem://lake", lambda: 0.0)
    written = document(path)
    storage.put_atomic(f"{JOURNAL_FOLDER}/events_main/{written['batch']}.json", path.read_bytes())
    journal = Journal(storage, "events_main")
    [record] = journal.read([written["batch"]])
    [batch] = journal.committed([written["batch"]])
    outcomes = {file["path"]: file["outcome"] for file in written["files"]}
    assert record.outcomes == outcomes
    assert [entry.path for entry in batch.files] == list(outcomes)
    assert record.seen_ts == batch.seen_ts == written.get("seen_ts", written["started_ts"])
    assert [(one.final, one.rows) for one in batch.outputs] == [
        (one["final"], one["rows"]) for one in written["outputs"]
    ]
    assert batch.lettered == ("seen_ts" not in written)


@pytest.mark.parametrize("path", MIRRORS, ids=named)
def test_a_mirror_of_each_release_says_what_it_said(path: Path) -> None:
    memory = mirror_from_json(document(path), "x")
    assert memory.progress.value == "date=2024-01-29/broken.parquet"
    assert memory.progress.state == "Idle"
    assert sorted(memory.output_ids) == ["id-a", "id-b", "id-c"]
    assert memory.txn_version == 2
    assert (memory.seen == NOTHING_SEEN) == ("log" not in document(path))
    assert mirror_from_json(mirror_to_json(memory, memory.updated or 0), "x") == memory


@pytest.mark.parametrize("path", COMMITS, ids=named)
def test_a_commit_of_each_release_says_what_it_said(path: Path) -> None:
    memory = committed(document(path)["commitInfo"]["penguin"], 2, ["id-a"], "x")
    assert memory.progress.value == "date=2024-01-29/broken.parquet"
    assert memory.output_ids == ("id-a", "id-c")
    assert memory.txn_version == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_ids": ["a", 7]}, r"output_ids\[1\]: Expected `str`, got `int`"),
        ({"chores": {"reconcile": 1, "vacuum": "x"}}, r"chores\['vacuum'\]: Expected `int`"),
        ({"log": {"table_id": ""}}, "log: Object missing required field `version`"),
        ({"log": None, "recent": {"a": {"done": {"b": ""}}}}, r"recent\['a'\]\.done\['b'\]: Exp"),
    ],
)
def test_a_mirror_that_is_not_understood_is_refused_with_its_place(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(StateError, match=f"^x: {message}.*; restore it .* or delete it: it is"):
        mirror_from_json({**document(MIRRORS[-1]), **change}, "x")
