"""Zip archives: members as files, damage, contradictions, bombs, and whole tasks."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blizzard_core.limits import EXPANSION, ZIP_DIRECTORY_BYTES, ZIP_MEMBERS, ZIP_NAME_BYTES
from blizzard_core.settings.formats import (
    CsvOptions,
    FormatSettings,
    JsonOptions,
    NdjsonOptions,
    XmlOptions,
)
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.local import LocalStorage
from blizzard_core.storage.protocol import Entry
from blizzard_py.commands.starter.sample import sample
from blizzard_py.dead_letters import reader as dead_letters
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.formats.csv.files import CsvFormat
from blizzard_py.job import JobFile
from blizzard_py.kernels import task
from blizzard_py.lines import expansion as expansion_module
from blizzard_py.lines.archives import member_streams
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.expansion import Expansion
from blizzard_py.lines.failure import ArchiveFound, FileFailed
from blizzard_py.sources.files.file_names import accepts, why_ignored
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.files.sampling import first_records
from tests.support.ingest_job_harness import IngestJobHarness, by_path, lines, specs
from tests.support.packing import gzipped, zstd

CSV = CsvOptions(type="csv")
FIELDS = specs(id="int64", note="string")
NOISE = random.Random(1).randbytes(3 << 20)


def archive(
    members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, **given: Any
) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method, **given) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return target.getvalue()


class Unseekable(io.RawIOBase):
    """A pipe: sizes come behind the members."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


def streamed(members: Mapping[str, bytes], *, wide: bool = False) -> bytes:
    pipe = Unseekable()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            with packed.open(name, "w", force_zip64=wide) as member:
                member.write(content)
    return pipe.data


def read(data: bytes, limit: Expansion | None = None) -> dict[str, bytes]:
    def ranges(start: int, end: int) -> bytes:
        assert 0 <= start <= end
        return data[start:end]

    return {
        member.name: b"".join(member.blocks) for member in member_streams(ranges, len(data), limit)
    }


def entry_at(data: bytes, number: int = 0) -> int:
    """Return where an entry of the directory begins."""
    at = -1
    for _ in range(number + 1):
        at = data.index(b"PK\1\2", at + 1)
    return at


def with_field(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(f"<{form}", changed, at, value)
    return bytes(changed)


GOOD = {"a.csv": b"id,note\n1,x\n", "d/b.csv": b"id\n2\n" * 9}
SMALL = archive(GOOD)


@pytest.mark.parametrize(
    "data",
    [
        SMALL,
        archive(GOOD, zipfile.ZIP_STORED),
        archive(GOOD, zipfile.ZIP_BZIP2),
        streamed(GOOD),
        streamed(GOOD, wide=True),
        with_field(streamed(GOOD), 22, "I", len(GOOD["a.csv"])),  # as Info-ZIP does
        SMALL[:-2] + struct.pack("<H", 30) + b"PK\5\6" + b"c" * 26,
    ],
    ids=["deflate", "stored", "bzip2", "streamed", "wide", "size known", "remark"],
)
def test_members_are_read_completely(data: bytes) -> None:
    assert read(data) == GOOD


def test_large_members_come_in_blocks() -> None:
    members = {"a": NOISE, "b": bytes(5 << 20), "c": NOISE[::-1]}
    data = archive(members)
    assert read(data) == members
    for member in member_streams(lambda start, end: data[start:end], len(data)):
        assert max(map(len, member.blocks)) <= 1 << 20


def test_an_archive_without_members_is_empty() -> None:
    assert read(archive({})) == {}


@pytest.mark.parametrize("marked", [True, False])
def test_a_wide_directory_is_read(marked: bool) -> None:
    """The record of 64 bits; Info-ZIP writes it also before a directory that needs none."""
    end = SMALL.rindex(b"PK\5\6")
    count, size, offset = struct.unpack_from("<HII", SMALL, end + 10)
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    told = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF) if marked else (count, count, size, offset)
    last = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *told, 0)
    data = SMALL[:end] + record + locator + last
    assert read(data) == GOOD
    for cut in range(4, len(data)):
        with pytest.raises(FileFailed):
            read(data[:cut])
    with pytest.raises(FileFailed, match="not a complete zip stream"):
        read(SMALL[:end] + record + last)
    with pytest.raises(FileFailed, match="the records of its directory differ"):
        read(with_field(data, len(data) - 12, "H", 1))


def test_folders_and_hidden_members_are_skipped() -> None:
    members = {"d/": b"", "__MACOSX/._a.csv": b"x", "d/.DS_Store": b"x", "d/_tmp/a": b"y"}
    assert read(archive({**members, **GOOD})) == GOOD
    with pytest.raises(FileFailed, match="all members of the zip archive are hidden, '__MACOSX"):
        read(archive(members))
    assert read(archive({"d/": b""})) == {}


@pytest.mark.parametrize("pack", [archive, streamed])
def test_an_archive_that_is_cut_anywhere_is_refused(
    tmp_path: Path, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    data = pack(GOOD)
    world = IngestJobHarness(tmp_path, specs(id="int64"), format=CSV)
    for cut in range(len(data)):
        world.put(f"{cut:04}.csv.zip", data[:cut])
    report = world.run_task()
    assert world.rows(report) == []
    assert {(file.outcome, file.stage) for file in report.files} == {("quarantined", "decompress")}


@pytest.mark.parametrize("pack", [archive, streamed])
def test_a_changed_byte_never_changes_a_row(pack: Callable[[Mapping[str, bytes]], bytes]) -> None:
    data = pack(GOOD)
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            changed = bytearray(data)
            changed[at] ^= flip
            # Dates, versions and attributes have no part in the rows.
            assert verdict(bytes(changed)) in [GOOD, ("quarantined", "decompress")]


def verdict(data: bytes) -> dict[str, bytes] | tuple[str, str]:
    try:
        return read(data)
    except FileFailed as error:
        return error.outcome, error.stage


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: with_field(data, entry_at(data) + 8, "H", 1), "'a.csv'.*is encrypted"),
        (lambda data: with_field(data, entry_at(data) + 10, "H", 9), "has compression method 9"),
        (lambda data: with_field(data, entry_at(data) + 38, "I", 0xA1FF0000), "is a link"),
        (lambda data: with_field(data, entry_at(data) + 16, "I", 7), "own header differs"),
        (lambda data: with_field(data, entry_at(data) + 24, "I", 5), "own header differs"),
        (lambda data: with_field(data, entry_at(data) + 10, "H", 0), "own header differs"),
        (lambda data: with_field(data, 6, "H", 1), "own header differs"),
        (lambda data: data.replace(b"a.csv", b"b.csv", 1), "own header differs"),
        (
            lambda data: with_field(
                data, entry_at(data, 1) + 42, "I", data.index(b"PK\3\4", 4) + 1
            ),
            "a place without a member",
        ),
        (lambda data: with_field(data, entry_at(data) + 42, "I", 3), "its directory lacks"),
        (lambda data: with_field(data, entry_at(data) + 34, "H", 1), "is in another file"),
        (lambda data: data + b"\n", "does not end with its directory"),
        (lambda data: b"#!" + data, "other bytes stand before it"),
        (lambda data: with_field(data, len(data) - 18, "H", 1), "in several files"),
        (lambda data: with_field(data, len(data) - 12, "H", 1), "in several files"),
    ],
)  # fmt: skip
def test_archives_that_cannot_be_trusted(change: Callable[[bytes], bytes], reason: str) -> None:
    with pytest.raises(FileFailed, match=reason) as raised:
        read(change(SMALL))
    assert raised.value.stage == "decompress"


@pytest.mark.parametrize(
    ("content", "of"),
    [
        (archive({"a": b"x"}), "zip"),
        (archive({}), "zip"),
        (gzipped(b"x"), "gz"),
        (zstd(b"x"), "zstd"),
    ],
)
def test_members_that_are_packed_again_are_refused(content: bytes, of: str) -> None:
    with pytest.raises(FileFailed, match="is packed once more; store it unpacked"):
        read(archive({f"a.{of}": content}))


def test_two_members_of_one_name_are_refused() -> None:
    data = archive({"a.csv": b"1", "b.csv": b"2"})
    with pytest.raises(FileFailed, match="two members have one name"):
        read(data.replace(b"b.csv", b"a.csv"))


def test_members_that_overlap_are_refused() -> None:
    """A bomb of one stream that many members name: each counts it again."""
    data = archive({"a.csv": bytes(1000), "b.csv": bytes(1000)}, zipfile.ZIP_STORED)
    second = data.index(b"PK\3\4", 4)
    same = with_field(data, entry_at(data, 1) + 42, "I", 0)
    with pytest.raises(FileFailed, match="its members overlap"):
        read(same)
    # The first is said to reach over the second.
    longer = data
    for at in (18, 22, entry_at(data) + 20, entry_at(data) + 24):
        longer = with_field(longer, at, "I", second + 100)
    with pytest.raises(FileFailed, match="its members overlap"):
        read(longer)


def with_directory(entries: Sequence[bytes], data: bytes) -> bytes:
    """Return an archive's members with this directory."""
    found = b"".join(entries)
    end = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, len(entries), len(entries), len(found), len(data), 0
    )
    return data + found + end


@pytest.mark.parametrize("pack", [archive, streamed])
@pytest.mark.parametrize(
    "missing", [{"a"}, {"_b"}, {"c"}, {"d"}, {"c", "d"}, {"a", "_b", "c", "d"}]
)
def test_a_member_that_the_directory_lacks_is_refused(
    pack: Callable[[Mapping[str, bytes]], bytes], missing: set[str]
) -> None:
    names = ["a", "_b", "c", "d"]
    data = pack({name: b"id\n%d\n" % at for at, name in enumerate(names)})
    begin, end = entry_at(data), data.rindex(b"PK\5\6")
    entries = [b"PK\1\2" + entry for entry in data[begin:end].split(b"PK\1\2")[1:]]
    listed = [entry for name, entry in zip(names, entries, strict=True) if name not in missing]
    assert len(read(with_directory(entries, data[:begin]))) == 3
    with pytest.raises(FileFailed, match="holds a member that its directory lacks"):
        read(with_directory(listed, data[:begin]))


def test_a_program_before_the_members_is_skipped() -> None:
    program = b"#!/bin/sh\nPK\3\4\n" * 9
    begin, end = entry_at(SMALL), SMALL.rindex(b"PK\5\6")
    entries = [b"PK\1\2" + entry for entry in SMALL[begin:end].split(b"PK\1\2")[1:]]
    for at, entry in enumerate(entries):
        [offset] = struct.unpack_from("<I", entry, 42)
        entries[at] = with_field(entry, 42, "I", offset + len(program))
    assert read(with_directory(entries, program + SMALL[:begin])) == GOOD


def test_an_archive_above_a_limit_is_quarantined() -> None:
    end = SMALL.rindex(b"PK\5\6")
    many = SMALL
    for at in (end + 8, end + 10):
        many = with_field(many, at, "H", ZIP_MEMBERS + 1)
    with pytest.raises(FileFailed, match=r"of 10,001 members and .* store several archives"):
        read(many)
    size = ZIP_DIRECTORY_BYTES + 1
    with pytest.raises(FileFailed, match="16,777,217 bytes of their names"):
        read(with_field(SMALL, end + 12, "I", size) if size < end else _padded(SMALL, size))
    with pytest.raises(FileFailed, match=r"name is longer than 1,024 bytes"):
        read(archive({"n" * (ZIP_NAME_BYTES + 1): b""}))
    assert len(read(archive({str(n): b"" for n in range(ZIP_MEMBERS)}))) == ZIP_MEMBERS


def _padded(data: bytes, directory: int) -> bytes:
    """Return the archive with a directory of so many bytes."""
    end = data.rindex(b"PK\5\6")
    begin = entry_at(data)
    padded = data[:begin] + bytes(directory) + data[end:]
    return with_field(padded, len(padded) - 10, "I", directory)


def test_what_members_become_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion_module, "EXPANSION_FREE_BYTES", 1 << 20)
    data = archive({f"{n}.csv": bytes(1 << 20) for n in range(8)})
    with pytest.raises(FileFailed, match="becomes more than 256 times"):
        read(data, Expansion(len(data), EXPANSION))


def test_a_member_that_becomes_more_than_it_says_is_stopped() -> None:
    data = archive({"a.csv": bytes(8 << 20)})
    for at in (22, entry_at(data) + 24):
        data = with_field(data, at, "I", 10)
    [member] = member_streams(lambda start, end: data[start:end], len(data))
    with pytest.raises(FileFailed, match="its size or checksum is not that of the directory"):
        next(member.blocks)


# --- Through tasks -------------------------------------------------------------------------------

FORMATS: dict[str, tuple[FormatSettings, Callable[..., bytes]]] = {
    "ndjson": (NdjsonOptions(), lines),
    "json": (
        JsonOptions(type="json"),
        lambda *ids: json.dumps([{"id": n} for n in ids], separators=(",", ":")).encode(),
    ),
    "xml": (
        XmlOptions(type="xml", row_tag="r"),
        lambda *ids: f"<x>{''.join(f'<r><id>{n}</id></r>' for n in ids)}</x>".encode(),
    ),
    "csv": (CSV, lambda *ids: b"id\n" + b"".join(b"%d\n" % n for n in ids)),
}


@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1 << 20])
@pytest.mark.parametrize("kind", FORMATS)
def test_each_member_is_a_file_of_its_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, size: int, attempt: int
) -> None:
    monkeypatch.setattr(task, "SMALL_FILE_BYTES", size)
    form, content = FORMATS[kind]
    world = IngestJobHarness(tmp_path, format=form, metadata=("_source_file", "_source_line"))
    world.put(f"a.{kind}.zip", archive({f"1.{kind}": content(1, 2), f"2.{kind}": content(3)}))
    world.put(f"b.{kind}.zip", archive({"only": content(4)}))
    world.put(f"c.{kind}.zip", content(5))  # its name is wrong
    world.put(f"d.{kind}", archive({"x": content(6)}))  # here, too
    world.put(f"e.{kind}.gz", gzipped(content(7)))
    report = world.run_task(attempt=attempt)
    assert world.ids(report) == [1, 2, 3, 4, 5, 6, 7]
    numbers = {row["id"]: row["_source_line"] for row in world.rows(report)}
    head = 1 if kind == "csv" else 0
    assert [numbers[n] for n in (1, 2, 3)] == [1 + head, 2 + head, 3 + 2 * head]


def test_letters_name_their_member_and_lines_count_on(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FIELDS, format=CSV, metadata=("_source_line",))
    second = b"note,id\ny,2\nz,bad\n"
    world.put("a.csv.zip", archive({"1.csv": b"id,note\n1,x\nworse,w\n", "d/2.csv": second}))
    report = world.run_task()
    assert {row["id"]: row["_source_line"] for row in world.rows(report)} == {1: 2, 2: 5}
    found = world.letters(report)
    assert [(each["line"], each["member"], each["raw"], each["header"]) for each in found] == [
        (3, "1.csv", "worse,w", "id,note"), (6, "d/2.csv", "z,bad", "note,id"),
    ]  # fmt: skip
    assert second[found[1]["offset"] :].startswith(b"z,bad\n")
    storage = LocalStorage(str(world.source))
    size = (world.source / "a.csv.zip").stat().st_size
    again = read_records(storage, JobFile("a.csv.zip", size), [3, 6], EXPANSION, CSV)
    assert {number: record.raw for number, record in again.items()} == {3: b"worse,w", 6: b"z,bad"}
    staged = DeadLetterObject(report.letters.staged, "x.records", "records", 0, 0.0, False)
    letters = list(dead_letters.read(LocalStorage(str(world.table)), staged))
    assert [letter.to_json(staged)["member"] for letter in letters] == ["1.csv", "d/2.csv"]
    mended = replace(letters[1], raw=b"z,7")
    assert CsvFormat(CSV).replay_contents([mended]) == [b"\xef\xbb\xbfnote,id\nz,7\n"]


def test_failures_name_the_member(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, FIELDS, format=CSV)
    good = b"id,note\n1,x\n"
    damaged = bytearray(archive({"1.csv": good, "2.csv": good}, zipfile.ZIP_STORED))
    damaged[damaged.rindex(b"1,x")] ^= 1
    world.put("a.csv.zip", archive({"1.csv": good, "README.md": b"# Hello\n"}))
    world.put("b.csv.zip", bytes(damaged))
    world.put("c.csv.zip", b"PK\x01\x02\xff")
    world.put("d.csv.gz", gzipped(archive({"1.csv": good})))
    world.put("e.csv.zip", archive({"1.csv": good}))
    report = world.run_task()
    found = by_path(report)
    assert len(world.rows(report)) == 1
    assert "member 'README.md': the header has none of the columns" in found["a.csv.zip"].error
    assert found["b.csv.zip"].error.startswith("member '2.csv': not a complete zip stream")
    assert "ends with .zip, but it begins with 50 4b 01 02" in found["c.csv.zip"].error
    assert "a zip archive in gzip; store the archive itself" in found["d.csv.gz"].error
    assert {found[name].outcome for name in found if name != "e.csv.zip"} == {"quarantined"}


def test_a_large_archive_is_read_by_ranges(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    numbers = range(0, 1_200_000, 3)
    members = {f"{n}.ndjson": lines(*numbers[n::3]) for n in range(3)}
    world.put("a.ndjson.zip", archive(members, zipfile.ZIP_STORED))
    assert (world.source / "a.ndjson.zip").stat().st_size > 4 << 20
    report = world.run_task()
    assert world.ids(report) == [*numbers]
    assert by_path(report)["a.ndjson.zip"].bytes_read == sum(map(len, members.values()))


def test_an_archive_is_read_about_once_whatever_its_order() -> None:
    names = [str(number) for number in range(3000)]
    data = archive(dict.fromkeys(names, NOISE[:2000]), zipfile.ZIP_STORED)
    begin, end = entry_at(data), data.rindex(b"PK\5\6")
    entries = [b"PK\1\2" + entry for entry in data[begin:end].split(b"PK\1\2")[1:]]
    random.Random(2).shuffle(entries)
    shuffled = data[:begin] + b"".join(entries) + data[end:]
    asked: list[int] = []

    def ranges(start: int, stop: int) -> bytes:
        found = shuffled[start:stop]
        asked.append(len(found))
        return found

    found = {each.name: b"".join(each.blocks) for each in member_streams(ranges, len(shuffled))}
    assert list(found) == names
    assert len(asked) < 8
    assert sum(asked) < 2 * len(shuffled)


def test_other_readers_refuse_an_archive(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(SMALL)
    storage = LocalStorage(str(tmp_path))
    with (
        pytest.raises(ArchiveFound, match="store its files by themselves"),
        opened(storage, JobFile("a.zip", len(SMALL))),
    ):
        pass


# --- Selection, samples --------------------------------------------------------------------------


def test_names_of_archives_count() -> None:
    source = SourceSettings(source_uri="/raw", format=CSV)
    assert accepts(source)("d/a.csv.zip")
    assert accepts(source, "zip")("a.tsv.zip")
    assert not accepts(source, "gzip")("a.csv.zip")
    gzip_only = SourceSettings.model_validate(
        {"source_uri": "/raw", "advanced": {"compression": "gzip"}}
    )
    assert "it would for zip or auto" in (why_ignored("a.json.zip", gzip_only) or "")


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_samples_and_init_read_archives(tmp_path: Path, kind: str) -> None:
    form, content = FORMATS[kind]
    data = archive({"d/": b"", "1": content(1), "2": content(2)})
    (tmp_path / f"a.{kind}.zip").write_bytes(data)
    storage = LocalStorage(str(tmp_path))
    entry = Entry(f"a.{kind}.zip", len(data), 0.0)
    found = [line for line in first_records(storage, entry, 1 << 20, form).lines if line]
    assert found == [b'{"id":1}', b'{"id":2}']
    proposed = sample(storage)
    assert proposed.problem == ""
    assert (proposed.format.type, proposed.records) == (kind, 2)
