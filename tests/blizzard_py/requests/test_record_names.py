"""Files whose names look like those that records of files have: each is known from all others."""

from __future__ import annotations

import pytest

from blizzard_py.state.record_names import is_short, record_file, stem_of, stem_prefix
from tests.support.letter_harness import record_name, uri
from tests.support.published_groups import groups_of
from tests.support.replace_harness import ReplaceHarness
from tests.support.request_harness import BATCH, DAY, RECORDS

# As many writers name their files, and the other way round too.
PART = f"{DAY}/6.0192e0a0-1111-7222-8333-944444444444.0.ndjson"
NESTED = PART.removesuffix(".ndjson") + f".ndjson.{BATCH}.17.ndjson"
LONG = f"{DAY}/6{'a' * 170}.json"
# What the names of the long file's record files begin with, and what those of that would.
DIGEST = stem_prefix(stem_of(LONG))
DIGEST_OF_DIGEST = stem_prefix(stem_of(DIGEST))
# The name of a file of records keeps what its format reads of a name.
LONG_TABS = f"{DAY}/6{'a' * 170}.TSV.gz"
TABS_DIGEST = stem_prefix(stem_of(LONG_TABS))
NAMES = [f"{DAY}/6.json", PART, NESTED, LONG, DIGEST, DIGEST_OF_DIGEST, LONG_TABS, TABS_DIGEST]


def with_a_bad_record(path: str) -> ReplaceHarness:
    """A file that was taken but for one record."""
    world = ReplaceHarness()
    world.put(path, "6:a", "?6:bad")
    world.ingest(path)  # by name: polls pass over what has no known ending
    world.put_records({"path": uri(path), "line": 2, "raw": "6:bad"}, batch=batch_of(world))
    return world


def batch_of(world: ReplaceHarness) -> str:
    return world.open_letters()[0].batch


def replaced(world: ReplaceHarness, path: str) -> tuple[str, int]:
    """Replace a file with one that was mended; what became of it, and its rows of before."""
    world.put(path, "6:a", "6:mended")
    [line] = world.done({"files": [path]}).files
    return line.state, line.before


def test_no_two_names_have_one_stem() -> None:
    stems = [stem_of(name) for name in NAMES]
    assert len(set(stems)) == len(NAMES)
    for name, stem in zip(NAMES, stems, strict=True):
        assert stem_of(stem) == stem, name
        record = f"//records/{record_file(stem, BATCH, 3)}"
        assert stem_of(record) == stem, name
        assert len(record.rpartition("/")[2]) < 230


@pytest.mark.parametrize("path", NAMES)
def test_records_bring_nothing_once_their_file_was_replaced(path: str) -> None:
    world = with_a_bad_record(path)
    assert replaced(world, path) == ("replaced", 1)
    assert set(world.replay().values()) == {"present"}
    [group] = groups_of(world.sink)
    assert group.source_files == (uri(path),)


@pytest.mark.parametrize("path", NAMES)
def test_a_file_replaces_its_records_as_well(path: str) -> None:
    world = with_a_bad_record(path)
    record = record_name(stem_prefix(stem_of(path)), batch_of(world))
    assert world.replay() == {record: "ingested"}
    assert replaced(world, path) == ("replaced", 2)
    [group] = groups_of(world.sink)
    assert uri(path) in group.source_files
    assert len(group.source_files) == 2


def test_a_record_that_fails_again_keeps_its_files_name() -> None:
    world = with_a_bad_record(PART)
    batch = batch_of(world)
    home = f"{world.dlq.uri}/{RECORDS}"
    failed = {"path": f"{home}/{PART}.{batch}.0.ndjson", "line": 1, "raw": "6:again"}
    world.put_records(failed, batch=batch)
    assert world.replay() == {record_name(PART, batch): "ingested"}
    # Its whole file, too, is known by that name.
    world.put_records(failed, batch=batch)
    world.put(PART, "6:a", "6:mended")
    [line] = world.replay_all_files().files
    assert (line.path, line.state, line.before) == (PART, "replaced", 2)


def test_replay_refuses_a_file_known_only_by_a_digest() -> None:
    world = with_a_bad_record(LONG)
    batch = batch_of(world)
    home = f"{world.dlq.uri}/{RECORDS}"
    record = record_file(stem_of(LONG), batch, 0)
    world.put_records({"path": f"{home}/{record}", "line": 1, "raw": "6:again"}, batch=batch)
    [line] = world.replay_all_files().files
    assert (line.path, line.state) == (f"{batch}.records", "refused")
    assert "only a digest" in line.reason
    assert len(world.open_letters()) == 1


def test_a_file_named_like_a_digest_is_replaced_separately() -> None:
    world = ReplaceHarness()
    assert is_short(stem_of(LONG))
    for path, row in ((LONG, "6:a"), (DIGEST, "7:a")):
        world.put(path, row)
        world.ingest(path)
    for path in (LONG, DIGEST):
        world.put(path, "6:b", "6:c")
    done = world.done({"files": [LONG, DIGEST]})
    assert {line.path: (line.state, line.before) for line in done.files} == {
        LONG: ("replaced", 1),
        DIGEST: ("replaced", 1),
    }
    world.put(LONG, "6:d")
    [line] = world.done({"files": [LONG]}).files
    assert (line.state, line.before) == ("replaced", 2)
    assert groups_of(world.sink)[-1].source_files == (uri(LONG),)


def test_a_refusal_names_a_required_file_with_a_long_name() -> None:
    world = ReplaceHarness(named=False)
    world.put(LONG, "6:a")
    world.put(f"{DAY}/7.json", "7:a")
    world.drain()
    refused = world.done({"files": [f"{DAY}/7.json"]})
    assert refused.request.state == "rejected"
    assert f"have to come along: {LONG} (" in refused.request.reason
    assert "Missing at the source" not in refused.request.reason
    both = world.done({"files": [f"{DAY}/7.json", LONG]})
    assert set(both.states.values()) == {"replaced"}
