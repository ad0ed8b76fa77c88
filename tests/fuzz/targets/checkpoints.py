"""Our own files, damaged or foreign: checkpoints, mirrors, journals, manifests, segments."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from blizzard_core.checkpoint.document import encode, parsed
from blizzard_core.errors import StateError
from blizzard_core.handover.groups import Group, GroupFile, decode_group, encode_group
from blizzard_core.text import json_value
from blizzard_py.state import processed_set
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.state_paths import StatePaths
from penguin_py.delta.output_ids import OutputIds
from penguin_py.planning.memory import Memory, memory_of_commit, mirror_from_json, mirror_to_json
from tests.fuzz.mutate import behind, json_document
from tests.fuzz.target import Target, hold
from tests.support.memory_store import MemoryStorage

_STATES = Path(__file__).parents[2] / "data" / "states"
_WHERE = "mem://bucket/state.json"
_SOURCE = "p_s"
_SEGMENT = "00000001~a"


def _state(data: bytes) -> None:
    def saved(state: SourceState) -> SourceState:
        document = state_to_json(state, state.summary.last_update_ts)
        return state_from_json(json_value(encode(document)), _WHERE)

    # What the specification's form leaves out is made complete once.
    first = saved(state_from_json(parsed(data, _WHERE), _WHERE))
    hold("a state is what was saved of it", saved(first) == first, first)


def _mirror(data: bytes) -> None:
    def saved(memory: Memory) -> Memory:
        document = mirror_to_json(memory, memory.updated or 0)
        return mirror_from_json(json_value(encode(document)), _WHERE)

    first = saved(mirror_from_json(parsed(data, _WHERE), _WHERE))
    hold("a memory is what was saved of it", saved(first) == first, first)


def _commit(data: bytes) -> None:
    memory_of_commit(parsed(data, _WHERE), 1, (), _WHERE)


def _journal(data: bytes) -> None:
    store = MemoryStorage()
    batch = "0190a0a0-0000-7000-8000-000000000000"
    store.objects[f"{StatePaths(_SOURCE).journal}/{batch}.json"] = (data, 0.0)
    journal = Journal(store, _SOURCE, 1)
    for reading in (journal.read, journal.read_committed, journal.documents):
        _understood(lambda reading=reading: list(reading([batch])))


_KINDS: tuple[Callable[[bytes], object], ...] = (_state, _mirror, _commit, _journal)


def _understood(action: Callable[[], object]) -> None:
    """Run the action, or refuse the state with its place."""
    try:
        action()
    except StateError as error:
        told = str(error)
        hold("a refusal names the place", told.startswith("mem://bucket/"), told)
        hold("a message is bounded", len(told) < 20_000, len(told))


def checkpoints(data: bytes) -> None:
    """Read a state exactly and save it again unchanged, or refuse it by name."""
    if data:
        _understood(lambda: _KINDS[data[0] % len(_KINDS)](data[1:]))


def manifests(data: bytes) -> None:
    """Read a group exactly, or refuse it; no group names a file outside the table."""

    def read() -> None:
        group = decode_group(data, _WHERE, _SOURCE, 1)
        hold("a group is what was saved of it", _again(group) == group, group)
        for file in group.files:
            parts = file.path.split("/")
            hold("no path leads out", not {"", ".", ".."}.intersection(parts), file)

    _understood(read)


def _again(group: Group) -> Group:
    return decode_group(encode_group(group), _WHERE, _SOURCE, 1)


def segments(data: bytes) -> None:
    """Digests are whole, or refused by name."""
    store = MemoryStorage()
    store.objects[processed_set.path_of("f", _SEGMENT)] = (data, 0.0)
    _understood(lambda: processed_set.digests_at(store, processed_set.path_of("f", _SEGMENT)))
    name = f"_penguin/output_ids/{0:020d}-{'0' * 32}.digests"
    store.objects[name] = (data, 0.0)
    _understood(lambda: "p/s/b/1/0" in OutputIds(store))


def _document_seeds() -> Iterator[bytes]:
    for path in sorted(_STATES.rglob("*.json")):
        data = path.read_bytes()
        if path.name == "commit.json":
            data = json.dumps(json.loads(data)["commitInfo"]["penguin"]).encode()
        kind = {"journal.json": 3, "mirror.json": 1, "commit.json": 2}.get(path.name, 0)
        if len(data) < 8000:
            yield bytes([kind]) + data


def _manifest_seeds() -> Iterator[bytes]:
    files = (GroupFile("date=1/unit-1.parquet", 1, 2, "p/s/b/1/0"),)
    yield encode_group(Group(_SOURCE, 1, 1, "b", files, (("a", "b"),), ("s3://a/b",), ("c",)))
    yield encode_group(Group(_SOURCE, 1, 0, "b", ()))


def _segment_seeds() -> Iterator[bytes]:
    store = MemoryStorage()
    names = processed_set.ProcessedSet(store, "f")
    names.load(())
    names.adding(["a", "b"])
    [(data, _)] = store.objects.values()
    yield data
    yield data[:16] + struct.pack("<Q", 2**63) + data[24:]
    ids = MemoryStorage()
    OutputIds(ids).fold(["a", "b"], 3)
    [(data, _)] = ids.objects.values()
    yield data


TARGETS = (
    Target("checkpoints", checkpoints, _document_seeds, behind(1, json_document), max_bytes=8192),
    Target("manifests", manifests, _manifest_seeds, json_document),
    Target("segments", segments, _segment_seeds, max_bytes=512),
)
