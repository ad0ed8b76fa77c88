"""The forms that a state is stored in: the specification's own, and the one that is written."""

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
from penguin_py.planning.memory import memory_of_commit, mirror_from_json, mirror_to_json
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
SUMMARIES = {
    "0-original/global": "1 partitions, 0 in grace, 0 rows, floor date=2024-01-28",
    "0-original/initial": "0 partitions, 0 in grace, 0 rows",
    "0-original/partitions": "2 partitions, 0 in grace, 0 rows",
    "1-last/both": "2 partitions, 2 in grace, 4 rows, publishing bad+c, running odd",
    "1-last/floors": (
        "4 partitions, 0 in grace, 18 rows, "
        "floor region=eu/date=2024-01-27, floor region=us/date=2024-01-27, 27 in ledger"
    ),
    "1-last/publishing": "2 partitions, 3 in grace, 4 rows, publishing odd, c tried 1",
    "1-last/queue": "2 partitions, 0 in grace, 6 rows, publishing 0, 0 queued, 14 in ledger",
    "1-last/running": "2 partitions, 4 in grace, 5 rows, running c, c tried 1",
    "1-last/set": (
        "1 partitions, 0 in grace, 9 rows, floor date=2024-01-27, 10 in set, 14 in ledger"
    ),
    "1-last/window": "1 partitions, 0 in grace, 2001 rows",
    "1-last/idle": "1 partitions, 3 in grace, 3 rows",
}


def document(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes())


def named(path: Path) -> str:
    return str(path.relative_to(STATES))


def summary(state: SourceState) -> str:
    progress = state.position.progress
    flying = [
        f"{one.phase} {'+'.join(stem(e.path) for e in one.files)}" for one in state.work.in_flight
    ]
    tries = [f"{stem(path)} tried {retry.count}" for path, retry in state.work.retries.items()]
    queued = [f"{stem(entry.path)} queued" for entry in state.work.queue]
    grace = sum(len(known.done) for known in progress.partitions.values())
    floors = [f"floor {floor}" for floor in (progress.floor, *progress.floors.values()) if floor]
    segments = [f"{one.count} in set" for one in state.names.processed or ()]
    folded = [f"{one.count} in ledger" for one in state.names.ledger]
    counts = (
        f"{len(progress.partitions)} partitions, {grace} in grace, {state.summary.totals.rows} rows"
    )
    return ", ".join([counts, *flying, *tries, *queued, *floors, *segments, *folded])


def stem(path: str) -> str:
    return Path(path).stem


@pytest.mark.promise("G-118")
@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_stored_checkpoint_loads_with_the_expected_content(path: Path) -> None:
    state = state_from_json(document(path), named(path))
    assert summary(state) == SUMMARIES[f"{path.parent.name}/{path.stem}"]


@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_saved_checkpoint_loads_unchanged(path: Path) -> None:
    saved = again(document(path))
    assert again(saved) == saved
    # What today's release writes comes back as it was, but for names that the journal has.
    if path.parent == CHECKPOINTS[-1].parent and path.stem != "window":
        assert saved == {k: v for k, v in document(path).items() if k != "writer"}


def again(document: dict[str, Any]) -> dict[str, Any]:
    state = state_from_json(document, "x")
    return json.loads(json.dumps(state_to_json(state, state.summary.last_update_ts or 0)))


@pytest.mark.promise("G-117")
@pytest.mark.parametrize("path", CHECKPOINTS, ids=named)
def test_a_wrong_value_anywhere_in_it_is_refused_with_its_place(path: Path) -> None:
    """No value of a checkpoint is taken over unchecked."""
    for place, changed in wrong(document(path)):
        with pytest.raises(StateError) as caught:
            state_from_json(changed, "s3://b/state.json")
        assert str(caught.value).startswith("s3://b/state.json: "), place


def wrong(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Return the document once per value in it, with an object in place of the value."""
    if isinstance(value, dict):
        return [
            (path, {**value, key: changed})
            for key, item in value.items()
            for path, changed in wrong(item, f"{place}.{key}".removeprefix("."))
        ]
    if isinstance(value, list):
        return [
            (path, [*value[:at], changed, *value[at + 1 :]])
            for at, item in enumerate(value)
            for path, changed in wrong(item, f"{place}[{at}]")
        ]
    return [(place, {"surprise": 1})]


@pytest.mark.promise("G-118")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"passed": {}}, "has passed, which this release does not know; run the release that"),
        ({"retries": {"a": 1}}, r"retries\['a'\]: Expected `object`, got `int`; restore it"),
        ({"schema_version": 9}, "schema_version 9 is not known here .*; run the release that"),
    ],
)
def test_another_form_of_a_checkpoint_is_refused(change: dict[str, Any], message: str) -> None:
    found = document(BLIZZARD / "1-last" / "both.json")
    with pytest.raises(StateError, match=f"^s3://b/state.json: {message}"):
        state_from_json(found | change, "s3://b/state.json")


def test_a_batch_of_another_form_is_refused() -> None:
    found = document(BLIZZARD / "1-last" / "both.json")
    del found["in_flight"][0]["seen_ts"]
    with pytest.raises(StateError, match=r"x: in_flight\[0\]: .* `seen_ts`; restore it as it was"):
        state_from_json(found, "x")


@pytest.mark.parametrize("path", JOURNALS, ids=named)
def test_a_journal_entry_says_what_became_of_files(path: Path) -> None:
    storage = MemoryStorage("mem://lake", lambda: 0.0)
    written = document(path)
    storage.put_atomic(f"{JOURNAL_FOLDER}/events_main/{written['batch']}.json", path.read_bytes())
    journal = Journal(storage, "events_main")
    [record] = journal.read([written["batch"]])
    [batch] = journal.read_committed([written["batch"]])
    outcomes = {file["path"]: file["outcome"] for file in written["files"]}
    assert {file.path: file.outcome for file in record.files} == outcomes
    assert [entry.path for entry in batch.files] == list(outcomes)
    assert record.seen_ts == batch.seen_ts == written["seen_ts"]
    assert [(one.final, one.rows) for one in batch.results.outputs] == [
        (one["final"], one["rows"]) for one in written["outputs"]
    ]


@pytest.mark.promise("G-118")
@pytest.mark.parametrize("path", MIRRORS, ids=named)
def test_stored_mirror_loads_with_the_expected_content(path: Path) -> None:
    memory = mirror_from_json(document(path), "x")
    assert memory.progress.value == "date=2024-01-29/broken.parquet"
    assert memory.progress.state == "Idle"
    assert sorted(memory.output_ids) == ["id-a", "id-b", "id-c"]
    assert memory.txn_version == 2
    assert mirror_from_json(mirror_to_json(memory, memory.updated or 0), "x") == memory


@pytest.mark.parametrize("path", COMMITS, ids=named)
def test_stored_commit_loads_with_the_expected_content(path: Path) -> None:
    memory = memory_of_commit(document(path)["commitInfo"]["penguin"], 2, ["id-a"], "x")
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
def test_invalid_mirror_is_refused_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=f"^x: {message}.*; restore it .* or delete it: it is"):
        mirror_from_json({**document(MIRRORS[-1]), **change}, "x")
