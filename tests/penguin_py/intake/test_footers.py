"""Footers that contradict themselves are on record, and the process goes on.

The Parquet library ends the process over some of them, so all are tried in a child.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import io
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from blizzard_core.limits import FILE_COLUMNS
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.schema_fit import SchemaRules, delta_schema, merge
from blizzard_core.threads import INLINE
from penguin_py.intake.footers import read_footers
from penguin_py.planning.commit_plan import make_plan
from tests.support.memory_store import MemoryStorage
from tests.support.penguin_readers import assert_all_read
from tests.support.table_harness import TableHarness, parquet
from tests.support.thrift_tree import Tree, edited, places

BINARY, LIST, STRUCT, WHOLE = 8, 9, 12, 5


def survives(work: Callable[[], object]) -> None:
    """Do it in a child; an error there, or its end by a signal, is one here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-4000:])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), f"ended by signal {os.WTERMSIG(status)}"
    assert not told, told


def outcome(data: bytes) -> str:
    """Why a file is refused, "" if it is taken."""
    store = MemoryStorage()
    store.objects["x.parquet"] = (data, 0.0)
    footers = read_footers(store, [Entry("x.parquet", len(data), 0.0)], INLINE)
    plan = make_plan(None, footers.sound, (), SchemaRules(None, "merge"))
    refused = [*footers.rejected, *plan.rejections]
    assert len(refused) + len(plan.adds) == 1
    return refused[0].reason if refused else ""


def refused_for(data: bytes, why: str) -> None:
    def work() -> None:
        reason = outcome(data)
        assert why in reason if why else not reason, reason

    survives(work)


def chunks(tree: Tree) -> Iterator[Tree]:
    for group in tree[4][1][1]:
        yield from group[1][1][1]


def in_chunks(edit: Callable[[Tree], object]) -> Callable[[Tree], None]:
    """The same for each column chunk's metadata."""

    def work(tree: Tree) -> None:
        for chunk in chunks(tree):
            edit(chunk[3][1])

    return work


def number(field: int, value: int) -> Callable[[Tree], None]:
    def work(tree: Tree) -> None:
        tree[field] = (tree.get(field, (6, 0))[0], value)

    return work


def bound(value: bytes) -> Callable[[Tree], None]:
    def work(metadata: Tree) -> None:
        metadata[12][1][5] = metadata[12][1][6] = (BINARY, value)

    return work


def nulls(value: int) -> Callable[[Tree], None]:
    return lambda metadata: number(3, value)(metadata[12][1])


def levels(metadata: Tree) -> None:
    metadata[16] = (STRUCT, {3: (LIST, (6, [1, 2, 3, 4]))})


def fewer(tree: Tree) -> None:
    for group in tree[4][1][1]:
        del group[1][1][1][1:]


def elsewhere(tree: Tree) -> None:
    for chunk in chunks(tree):
        chunk[1] = (BINARY, b"other.parquet")


def sealed(tree: Tree) -> None:
    for chunk in chunks(tree):
        chunk[8] = (STRUCT, {1: (STRUCT, {})})


def named(name: bytes) -> Callable[[Tree], None]:
    def work(tree: Tree) -> None:
        tree[2][1][1][1][4] = (BINARY, name)

    return work


def repeated(tree: Tree) -> None:
    tree[2][1][1][1][3] = (WHOLE, 7)


def noted(tree: Tree) -> None:
    tree[5] = (LIST, (STRUCT, [{1: (BINARY, b"key"), 2: (BINARY, b"\xff")}]))


def written_by(tree: Tree) -> None:
    tree[6] = (BINARY, b"\xff\xfe")


@pytest.mark.promise("G-101")
@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (written_by, "its writer's name is not valid UTF-8"),
        (noted, "a note of its writer is not valid UTF-8"),
        (named(b"\xff"), "a column's name is not valid UTF-8"),
        (named(b"other"), "called otherwise"),
        (repeated, "neither required, optional nor repeated"),
        (in_chunks(number(1, 1)), "of another type"),
        (in_chunks(number(1, 99)), "of another type"),
        (in_chunks(number(4, 3)), "LZO"),
        (in_chunks(number(4, 99)), "codec 99"),
        (in_chunks(number(5, 1)), "1 values in 2 rows"),
        (in_chunks(number(9, -5)), "before the file"),
        (in_chunks(number(7, -5)), "before the file"),
        (in_chunks(number(7, 1 << 40)), "past the end"),
        (in_chunks(lambda metadata: metadata.update({2: (LIST, (5, [77]))})), "unknown encoding"),
        (in_chunks(bound(b"")), "bound of 0 bytes"),
        (in_chunks(bound(b"123456789")), "bound of 9 bytes"),
        (in_chunks(nulls(-1)), "-1 nulls"),
        (in_chunks(nulls(10**12)), "nulls among 2 values"),
        (in_chunks(levels), "4 levels counted"),
        (fewer, "1 of 2 columns"),
        (elsewhere, "another file"),
        (sealed, "encrypted"),
        (lambda tree: tree.update({8: (STRUCT, {})}), "encrypted"),
        (lambda tree: [chunk.pop(3) for chunk in chunks(tree)], "of another type"),
    ],
)
def test_a_footer_that_contradicts_itself_is_refused(
    edit: Callable[[Tree], object], why: str
) -> None:
    refused_for(edited(parquet({"id": [3, 4], "n": [1, 2]}), edit), why)


def annotated(kind: int) -> bytes:
    """Text that is annotated otherwise, without a writer's note."""

    def edit(tree: Tree) -> None:
        element = tree[2][1][1][1]
        element.pop(10, None)
        element[6] = (WHOLE, kind)
        tree.pop(5, None)

    return edited(parquet({"s": ["x"]}), edit)


@pytest.mark.parametrize(("kind", "why"), [(4, "type ENUM"), (19, "type JSON")])
def test_text_that_some_readers_take_for_bytes_is_refused(kind: int, why: str) -> None:
    refused_for(annotated(kind), why)


def test_intervals_are_refused() -> None:
    table = pa.table({"i": pa.array([b"x" * 12], pa.binary(12))})

    def edit(tree: Tree) -> None:
        tree[2][1][1][1][6] = (WHOLE, 21)
        tree.pop(5, None)

    refused_for(edited(parquet(table), edit), "holds intervals")


@pytest.mark.parametrize(
    ("noted", "why"),
    [
        (pa.schema({"other": pa.int64(), "s": pa.string()}), "other columns than its writer"),
        (pa.schema({"s": pa.string(), "id": pa.int64()}), "other columns than its writer"),
        (pa.schema({"id": pa.int64()}), "other columns than its writer"),
        (pa.schema({"ID": pa.int64(), "s": pa.string()}), "other columns than its writer"),
        (pa.schema({"id": pa.int64(), "s": pa.binary()}), "its writer noted binary"),
        (pa.schema({"id": pa.timestamp("us"), "s": pa.string()}), "noted timestamp"),
        (pa.schema({"id": pa.int64(), "s": pa.large_string()}), ""),
        (pa.schema({"id": pa.int64(), "s": pa.dictionary(pa.int8(), pa.string())}), ""),
    ],
)
def test_a_note_of_other_columns_is_refused(noted: pa.Schema, why: str) -> None:
    """Files like these break delta-rs, or mislead polars."""
    note = base64.b64encode(noted.serialize().to_pybytes())

    def edit(tree: Tree) -> None:
        tree[5] = (LIST, (STRUCT, [{1: (BINARY, b"ARROW:schema"), 2: (BINARY, note)}]))

    refused_for(edited(parquet({"id": [1], "s": ["x"]}), edit), why)


def test_an_output_id_that_is_none_is_refused() -> None:
    """Ids are kept by the thousand, in memory, in the mirror and in each commit."""

    def edit(tree: Tree) -> None:
        pair = {1: (BINARY, b"blizzard.output_id"), 2: (BINARY, b"x" * 3_000_000)}
        tree[5] = (LIST, (STRUCT, [pair]))

    refused_for(edited(parquet({"id": [1]}), edit), "output_id of 3,000,000 bytes")


def test_the_widest_schemas_are_compared_in_no_time() -> None:
    """Each was compared with each: five seconds for a file, an hour for a commit of them."""
    names = [f"c{index}" for index in range(FILE_COLUMNS)]
    wide = pa.schema([(name, pa.int32()) for name in names])
    began = time.process_time()
    merge(wide, delta_schema(wide), (), "merge")
    assert time.process_time() - began < 2


class Kms(encryption.KmsClient):  # type: ignore[misc]  # has no types
    """Keys that are wrapped by nothing."""

    def wrap_key(self, key_bytes: bytes, _master: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _master: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.promise("G-101")
def test_an_encrypted_file_with_an_open_footer_is_refused() -> None:
    """Spark writes such files with `parquet.encryption.plaintext.footer`."""
    factory = encryption.CryptoFactory(lambda _connection: Kms())
    configuration = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"k": ["name"]}, plaintext_footer=True
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), configuration)
    table, sink = pa.table({"id": [1], "name": ["x"]}), io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    refused_for(sink.getvalue(), "encrypted")


def test_a_codec_that_spark_lacks_is_refused() -> None:
    refused_for(parquet({"id": [1]}, compression="brotli"), "Brotli")


KINDS = pa.table(
    {
        "whole": pa.array([1, None], pa.int32()),
        "flag": [True, None],
        "day": [dt.date(2020, 1, 1)] * 2,
        "moment": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "number": [decimal.Decimal("1.25"), decimal.Decimal("2.50")],
        "float": [1.5, 2.5],
        "bytes": [b"x", b"y"],
        "struct": [{"a": 1, "b": "x"}, None],
        "list": [[1, 2], None],
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)
FILES = (
    parquet({"id": [3, 4], "name": ["p", "q"]}),
    parquet(KINDS, output_id="p/1", row_group_size=1),
    parquet({"id": list(range(100))}, write_page_index=True, use_dictionary=False),
)


def mutated(seed: int) -> bytes:
    chance = random.Random(seed)

    def edit(tree: Tree) -> None:
        for _ in range(chance.choice((1, 1, 1, 2))):
            holder, key = chance.choice(list(places(STRUCT, tree)))
            if chance.random() < 0.2:
                del holder[key]
            elif isinstance(holder, list):
                holder[key] = other(holder[key])
            else:
                holder[key] = (holder[key][0], other(holder[key][1]))

    def other(value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return chance.choice((0, 1, -1, 3, 7, 99, 2**31 - 1, -(2**31), value + 1, value - 1))
        if isinstance(value, bytes):
            return chance.choice((b"", b"\xff", b"x", value[:-1], value + b"z", b"\0"))
        if isinstance(value, tuple):
            return chance.choice(((value[0], []), (value[0], value[1][:1])))
        return {}

    return edited(chance.choice(FILES), edit)


@pytest.mark.promise("G-101")
@pytest.mark.parametrize("first", range(0, 600, 100))
def test_no_footer_ends_the_process(first: int) -> None:
    def work() -> None:
        for seed in range(first, first + 100):
            try:
                outcome(mutated(seed))
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error

    survives(work)


def test_a_footer_cut_anywhere_is_unreadable_and_no_error() -> None:
    data = FILES[1]
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length : -8]

    def all_cuts() -> None:
        for kept in range(0, length, 7):
            cut = data[: -8 - length] + footer[:kept] + kept.to_bytes(4, "little") + b"PAR1"
            assert "unreadable Parquet footer" in outcome(cut), kept

    survives(all_cuts)


def test_files_of_common_writers_are_committed(world: TableHarness) -> None:
    for index, data in enumerate(FILES):
        world.put(f"p={index}/x.parquet", data)
    for index in range(len(FILES)):
        assert outcome(FILES[index]) == ""
    world.put("p=9/y.parquet", parquet(KINDS, compression="zstd", data_page_version="2.0"))
    world.run()
    assert world.quarantined() == {}
    assert_all_read(world)
