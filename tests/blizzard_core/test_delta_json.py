"""A Delta log, as deltalake itself writes, checkpoints and cleans it, and as others may."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from blizzard_core.delta_json import (
    actions_of,
    checkpoint_columns,
    columns_in,
    commit_path,
    newest_actions,
    newest_transactions,
    tail_of,
)
from blizzard_core.errors import NotFound, StateError, Unavailable
from blizzard_core.storage.local import LocalStorage
from tests.support.memory_store import MemoryStorage


def commit(folder: Path, **versions: int) -> None:
    write_deltalake(
        str(folder),
        pa.table({"id": [1]}),
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app, version) for app, version in versions.items()]
        ),
    )


def found(folder: Path) -> dict[str, int]:
    return dict(newest_transactions(LocalStorage(str(folder)), 4))


def test_no_log_has_no_transactions(tmp_path: Path) -> None:
    assert found(tmp_path / "nowhere") == {}
    assert found(tmp_path) == {}


def test_the_newest_version_of_each_application_is_found(tmp_path: Path) -> None:
    commit(tmp_path, a=1, b=5)
    commit(tmp_path, a=2)
    commit(tmp_path)
    assert found(tmp_path) == {"a": 2, "b": 5}


@pytest.mark.parametrize("behind", [0, 2])
def test_transactions_outlive_the_commits_that_had_them(tmp_path: Path, behind: int) -> None:
    commit(tmp_path, a=1, b=5)
    for _ in range(3):
        commit(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for number in range(behind):
        commit(tmp_path, a=10 + number)
    for number in range(4):
        (tmp_path / "_delta_log" / f"{number:020d}.json").unlink()
    assert found(tmp_path) == {"a": 9 + behind if behind else 1, "b": 5}


def test_a_damaged_commit_is_named(tmp_path: Path) -> None:
    commit(tmp_path, a=1)
    path = tmp_path / "_delta_log" / f"{1:020d}.json"
    path.write_text('{"txn":{"appId":"a","version":"x"}}\n')
    with pytest.raises(StateError, match=r"0001\.json.*version"):
        found(tmp_path)


@pytest.mark.promise("G-201")
@pytest.mark.parametrize("there", [(0, 1, 3), (3, 4)])
def test_a_log_that_lacks_a_commit_tells_no_transactions(there: tuple[int, ...]) -> None:
    storage = MemoryStorage()
    storage.put_atomic(f"_delta_log/{2:020d}.checkpoint.parquet", b"PAR1")  # cut off
    for number in there:
        storage.put_atomic(commit_path(number), b'{"txn":{"appId":"a","version":1}}\n')
    with pytest.raises(StateError, match=r"0[02]\.json: is missing, and no checkpoint"):
        newest_transactions(storage, 4)


@pytest.mark.promise("G-201")
@pytest.mark.parametrize("torn", [b"\n", b"\x00" * 60, b'{"txn":{"appId":"a","version":2'])
def test_a_torn_commit_is_refused(torn: bytes) -> None:
    storage = MemoryStorage()
    whole = b'{"txn":{"appId":"a","version":1}}\n'
    for number, raw in enumerate((whole, torn, whole)):
        storage.put_atomic(commit_path(number), raw)
    with pytest.raises(StateError, match=r"1\.json: is of zeros or cut off.*newest commit, delete"):
        newest_transactions(storage, 4)


class _CleanedUp(MemoryStorage):
    """A log of which files go as soon as they are listed."""

    def read(self, path: str) -> bytes:
        raise NotFound(f"{self.uri}/{path}")

    def read_range(self, path: str, start: int, end: int) -> bytes:  # noqa: ARG002  # it is gone
        raise NotFound(f"{self.uri}/{path}")


@pytest.mark.promise("G-201")
def test_a_vanishing_checkpoint_does_not_mean_an_empty_log() -> None:
    storage = _CleanedUp()
    _put(storage, f"{5:020d}.checkpoint.parquet", _ACTIONS)
    with pytest.raises(Unavailable, match="was cleaned up"):
        newest_transactions(storage, 4)


@pytest.mark.promise("G-201")
def test_a_commit_that_goes_meanwhile_is_looked_for_again() -> None:
    storage = _CleanedUp()
    storage.put_atomic(commit_path(0), b'{"txn":{"appId":"a","version":1}}\n')
    with pytest.raises(Unavailable, match=r"0\.json: was cleaned up"):
        newest_transactions(storage, 4)


_ACTIONS: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 3}},
    {"txn": {"appId": "a", "version": 7}},
]
_FILES: list[dict[str, Any]] = [
    {"add": {"path": f"{number}.parquet", "dataChange": bool(number)}} for number in range(3)
] + [{"remove": {"path": "old.parquet"}}]
_UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def _put(storage: MemoryStorage, name: str, actions: list[dict[str, Any]]) -> None:
    sink = io.BytesIO()
    kinds = dict.fromkeys(kind for action in actions for kind in action)
    pq.write_table(pa.Table.from_pylist([{**dict.fromkeys(kinds), **a} for a in actions]), sink)
    storage.put_atomic(f"_delta_log/{name}", sink.getvalue())


def _sidecars(storage: MemoryStorage) -> list[dict[str, Any]]:
    for number, actions in enumerate((_FILES[:2], _FILES[2:])):
        _put(storage, f"_sidecars/{number}.parquet", actions)
    return [*_ACTIONS, *({"sidecar": {"path": f"{number}.parquet"}} for number in range(2))]


@pytest.mark.parametrize("form", ["classic", "of two parts", "with sidecars", "of JSON"])
def test_checkpoints_of_each_form_are_read(form: str) -> None:
    storage, name = MemoryStorage(), f"{5:020d}.checkpoint"
    _put(storage, f"{4:020d}.checkpoint.parquet", [{"txn": {"appId": "a", "version": 1}}])
    if form == "classic":
        _put(storage, f"{name}.parquet", [*_ACTIONS, *_FILES])
    elif form == "of two parts":
        _put(storage, f"{name}.{1:010d}.{2:010d}.parquet", [*_ACTIONS, _FILES[0]])
        _put(storage, f"{name}.{2:010d}.{2:010d}.parquet", _FILES[1:])
    elif form == "with sidecars":
        _put(storage, f"{name}.{_UUID}.parquet", _sidecars(storage))
    else:
        text = "\n".join(map(json.dumps, _sidecars(storage)))
        storage.put_atomic(f"_delta_log/{name}.{_UUID}.json", text.encode())
    storage.put_atomic(commit_path(6), b'{"txn":{"appId":"b","version":2}}\n')
    tail = tail_of(storage)
    assert (tail.version, [entry.path for entry in tail.commits]) == (5, [commit_path(6)])
    assert newest_transactions(storage, 4) == {"a": 7, "b": 2}
    assert newest_actions(storage, ["protocol"], 4)["protocol"]["minReaderVersion"] == 3
    wanted = ("add.path", "add.dataChange", "remove.path")
    pieces = list(checkpoint_columns(storage, tail, wanted))
    assert [[value for piece in pieces for value in piece[name]] for name in wanted] == [
        ["0.parquet", "1.parquet", "2.parquet"],
        [False, True, True],
        ["old.parquet"],
    ]


@pytest.mark.parametrize(
    "line", [b'{"add":{"size":1}}', b'{"add":3}', b"[]", b'{"add":{"pa', b'{"add":{"path":1}}']
)
def test_an_add_that_is_not_understood_is_refused(line: bytes) -> None:
    with pytest.raises(StateError, match="mem://here"):
        columns_in(actions_of(line, "mem://here"), ("add.path",), "mem://here")
