"""Manifests of groups: what is written is what is read, and anything else is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_core.handover.groups import (
    Group,
    GroupFile,
    decode_group,
    encode_group,
    group_path,
    seq_of,
)

FILE = GroupFile("date=2024-01-01/unit-018d.parquet", 4096, 12, "a/b/c/1/0")
GROUP = Group("surveys", 17, 3, "b-1", (FILE,), (("surveys/2024-01", "surveys/20240"),))


def read(data: bytes, source: str = "surveys", seq: int = 17) -> Group:
    return decode_group(data, "s3://lake/t/17.json", source, seq)


def changed(**values: Any) -> bytes:
    return json.dumps(json.loads(encode_group(GROUP)) | values).encode()


def test_encoded_groups_decode_to_the_same_group() -> None:
    assert read(encode_group(GROUP)) == GROUP
    assert encode_group(GROUP) == encode_group(GROUP)
    empty = Group("ü/ß", 1, 0, "b", (), (("a", "b"), ("c", "d")))
    assert decode_group(encode_group(empty), "x", "ü/ß", 1) == empty


def test_paths_sort_as_their_numbers() -> None:
    paths = [group_path("surveys", seq) for seq in (1, 9, 10, 99, 10**15)]
    assert paths == sorted(paths)
    assert [seq_of(path) for path in paths] == [1, 9, 10, 99, 10**15]
    assert seq_of("_blizzard/groups/surveys/1.json") is None


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "version None"),
        (changed(v=2), "version 2"),
        (changed(v=True), "version True"),
        (changed(seq="17"), "seq"),
        (changed(seq=0), "seq"),
        (changed(more=1), "more"),
        (changed(files=[{"path": "unit-1"}]), "files"),
        (changed(replace=[["b", "a"]]), "empty"),
        (changed(replace=[["a", "a"]]), "empty"),
        (changed(seq=18), "number 18"),
        (changed(source="other"), "'other'"),
    ],
)
def test_invalid_manifests_raise_an_error_with_path_and_reason(data: bytes, what: str) -> None:
    with pytest.raises(StateError, match=r"^s3://lake/t/17\.json") as caught:
        read(data)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "path", ["part-1.parquet", "../unit-1.parquet", "a//unit-1.parquet", "/unit-1.parquet"]
)
def test_paths_that_are_no_files_of_groups_are_refused(path: str) -> None:
    file = {"path": path, "size": 1, "rows": 1, "output_id": "x"}
    with pytest.raises(StateError, match="no file of a group"):
        read(changed(files=[file]))
