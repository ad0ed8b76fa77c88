"""Transactions of a Delta log, as deltalake itself writes, checkpoints and cleans it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from blizzard_core.delta_transactions import newest_transactions
from blizzard_core.errors import StateError
from blizzard_core.storage.local import LocalStorage


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
