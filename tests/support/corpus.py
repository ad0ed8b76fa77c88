"""The corpus of inputs; its outcomes are in ``tests/blizzard_py/kernels/CORPUS.md``.

    python -m tests.support.corpus        # writes the tables anew, from what the kernels do

`tests/blizzard_py/kernels/test_corpus.py` fails if the tables in the document are not those made
here.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import zstandard

from blizzard_core.settings.sources import OnBadRecord
from blizzard_py.job import FieldSpec, FinishedFile
from blizzard_py.kernels import task
from tests.support.ingest_job_harness import IngestJobHarness, by_path, specs
from tests.support.packing import PACKERS

Fate = Literal["ingested", "record", "file"]

FIELDS = (
    FieldSpec("id", "int64", nullable=False),
    *specs(s="string", i="int32", f="float64", g="float32", b="boolean", t="timestamp", d="date"),
)
DOCUMENT = Path(__file__).parents[2] / "tests/blizzard_py/kernels/CORPUS.md"
START, END = "<!-- corpus: python -m tests.support.corpus -->\n", "<!-- end of the corpus -->"
_SHOWN = 60
_TITLES = (
    ("Ingested", "rows"),
    ("Bad records", "reason"),
    ("Quarantined files", "stage and reason"),
)


@dataclass(frozen=True)
class Case:
    """An input: one line between two good ones, or (``suffix`` given) a whole file.

    ``records`` and ``bad`` count rows and bad records of a whole file.
    """

    title: str
    data: bytes
    fate: Fate
    suffix: str = ""
    records: int = 2
    bad: int = 0

    @property
    def file(self) -> bytes:
        return self.data if self.suffix else b'{"id":-1}\n' + self.data + b'\n{"id":-2}\n'

    @property
    def expected_rows(self) -> int:
        if self.fate == "file":
            return 0
        return self.records if self.suffix else 2 + (self.fate == "ingested")

    @property
    def expected_bad(self) -> int:
        if self.suffix:
            return self.bad if self.fate == "record" else 0
        return 1 if self.fate == "record" else 0


def good(title: str, line: bytes) -> Case:
    return Case(title, line, "ingested")


def bad(title: str, line: bytes) -> Case:
    return Case(title, line, "record")


def case(title: str, suffix: str, data: bytes, fate: Fate, records: int = 2, bad: int = 0) -> Case:
    return Case(title, data, fate, suffix, records, bad)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


TWO = b'{"id":1}\n{"id":2}\n'
# Whoever cuts a file short does so where there is something to cut.
LONG = b"".join(b'{"id":%d,"s":"%d"}\n' % (n, n * 7919 % 10007) for n in range(3000))
_FURTHER = ("bz2", "xz", "lz4", "snappy", "hadoop.snappy")
GZ, ZST, NDJSON = ".ndjson.gz", ".ndjson.zst", ".ndjson"

LINES = (
    good("only the required field", b'{"id":1}'),
    good("explicit nulls", b'{"id":1,"s":null,"i":null,"f":null,"t":null,"d":null,"b":null}'),
    good("fields the schema does not name", b'{"id":1,"more":{"deep":[1,{"x":null}]},"z":[]}'),
    good("an ignored field given twice", b'{"id":1,"x":1,"x":2}'),
    good("a thousand levels in an ignored field", b'{"id":1,"x":' + b"[" * 900 + b"]" * 900 + b"}"),
    good("blanks around the object", b'  {"id":1}\t '),
    good("blanks within the object", b'{ "id" :\t1 , "s" : "x" }'),
    good("a carriage return at the end", b'{"id":1}\r'),
    good("an escaped field name", b'{"\\u0069d":1}'),
    good("the smallest int64", b'{"id":-9223372036854775808}'),
    good("the largest int64", b'{"id":9223372036854775807}'),
    good("minus zero as an integer", b'{"id":-0}'),
    good("escapes in a string", b'{"id":1,"s":"\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u00e9"}'),
    good("a surrogate pair", b'{"id":1,"s":"\\ud83d\\ude00"}'),
    good("UTF-8 text", '{"id":1,"s":"žluťoučký 🐎 日本"}'.encode()),
    good("an escaped NUL", b'{"id":1,"s":"a\\u0000b"}'),
    good("U+2028 in a string", '{"id":1,"s":"a\u2028b"}'.encode()),
    good("a DEL in a string", b'{"id":1,"s":"\x7f"}'),
    good("an empty string", b'{"id":1,"s":""}'),
    good("braces in a string", b'{"id":1,"s":"}{"}'),
    good("a string of 100 kB", b'{"id":1,"s":"' + b"x" * 100_000 + b'"}'),
    good("an integer in a float column", b'{"id":1,"f":3}'),
    good("an exponent in a float column", b'{"id":1,"f":1e3,"g":-2.5E-1}'),
    good("seventeen digits", b'{"id":1,"f":0.10000000000000001}'),
    good("an integer above 2^53 in a float column", b'{"id":1,"f":9007199254740993}'),
    good("a float that underflows", b'{"id":1,"f":1e-400}'),
    good("NaN", b'{"id":1,"f":NaN}'),
    good("infinities", b'{"id":1,"f":-Infinity,"g":Infinity}'),
    good("booleans", b'{"id":1,"b":true}'),
    good("a time in UTC", b'{"id":1,"t":"2024-05-06T12:00:00Z"}'),
    good("a time with an offset", b'{"id":1,"t":"2024-05-06T14:00:00+02:00"}'),
    good("a time without a zone: UTC", b'{"id":1,"t":"2024-05-06T12:00:00"}'),
    good("a time with a space", b'{"id":1,"t":"2024-05-06 12:00:00"}'),
    good("milliseconds", b'{"id":1,"t":"2024-05-06T12:00:00.123Z"}'),
    good("microseconds", b'{"id":1,"t":"2024-05-06T12:00:00.123456Z"}'),
    good("a date as a time: midnight", b'{"id":1,"t":"2024-05-06"}'),
    good("a leap day", b'{"id":1,"d":"2024-02-29"}'),
    bad("a required field missing", b"{}"),
    bad("a required field null", b'{"id":null}'),
    bad("a string for a number", b'{"id":"1"}'),
    bad("a fraction for an integer", b'{"id":1.5}'),
    bad("a whole fraction for an integer", b'{"id":1.0}'),
    bad("an exponent for an integer", b'{"id":1e3}'),
    bad("an integer beyond int64", b'{"id":9223372036854775808}'),
    bad("an integer beyond int32", b'{"id":1,"i":2147483648}'),
    bad("a boolean for a number", b'{"id":true}'),
    bad("an array for a number", b'{"id":[1]}'),
    bad("a field of the schema given twice", b'{"id":1,"id":2}'),
    bad("a leading zero", b'{"id":01}'),
    bad("a leading plus", b'{"id":+1}'),
    bad("a number for a string", b'{"id":1,"s":1}'),
    bad("a boolean for a string", b'{"id":1,"s":true}'),
    bad("an object for a string", b'{"id":1,"s":{"a":1}}'),
    bad("an array for a string", b'{"id":1,"s":["a"]}'),
    bad("a lone high surrogate", b'{"id":1,"s":"\\ud800"}'),
    bad("a lone low surrogate", b'{"id":1,"s":"\\udc00"}'),
    bad("a raw tab in a string", b'{"id":1,"s":"tab\there"}'),
    bad("a raw NUL in a string", b'{"id":1,"s":"a\x00b"}'),
    bad("an unknown escape", b'{"id":1,"s":"\\x41"}'),
    bad("invalid UTF-8 in a string", b'{"id":1,"s":"\xff\xfe"}'),
    bad("Latin-1 in an ignored field", b'{"id":1,"other":"caf\xe9"}'),
    bad("an encoded surrogate (CESU-8)", b'{"id":1,"s":"\xed\xa0\xbd\xed\xb8\x80"}'),
    bad("an overlong encoding", b'{"id":1,"s":"\xc0\xaf"}'),
    bad("a float out of range", b'{"id":1,"f":1e400}'),
    bad("a float beyond float32", b'{"id":1,"g":1e39}'),
    bad("a string for a float", b'{"id":1,"f":"1"}'),
    bad("a number for a boolean", b'{"id":1,"b":1}'),
    bad("a string for a boolean", b'{"id":1,"b":"true"}'),
    bad("epoch seconds for a time", b'{"id":1,"t":1700000000}'),
    bad("an empty time", b'{"id":1,"t":""}'),
    bad("no time at all", b'{"id":1,"t":"yesterday"}'),
    bad("nanoseconds", b'{"id":1,"t":"2024-05-06T12:00:00.123456789Z"}'),
    bad("a time after 9999 in UTC", b'{"id":1,"t":"9999-12-31T23:59:59-05:00"}'),
    bad("a time before year 1 in UTC", b'{"id":1,"t":"0001-01-01T00:00:00+02:00"}'),
    bad("a time in a year 0", b'{"id":1,"t":"0000-12-31T23:59:59Z"}'),
    bad("a day that is none", b'{"id":1,"d":"2024-02-30"}'),
    bad("a time for a date", b'{"id":1,"d":"2024-05-06T12:00:00Z"}'),
    bad("an empty date", b'{"id":1,"d":""}'),
    bad("a trailing comma", b'{"id":1,}'),
    bad("a missing comma", b'{"id":1 "s":"x"}'),
    bad("a comment", b'{"id":1 /* one */}'),
    bad("a line cut short", b'{"id":1,"s":"abc'),
    bad("single quotes", b"{'id':1}"),
    bad("no quotes", b"{id:1}"),
    bad("two objects", b'{"id":1}{"id":2}'),
    bad("two objects and a blank", b'{"id":1} {"id":2}'),
    bad("two objects and a carriage return", b'{"id":1}\r{"id":2}'),
    bad("an object and null", b'{"id":1}null'),
    bad("an object, null and an object", b'{"id":1}null{"id":2}'),
    bad("null", b"null"),
    bad("a number", b"1"),
    bad("a string", b'"text"'),
    bad("an array of objects", b'[{"id":1}]'),
    bad("a NUL byte", b"\x00"),
    bad("a byte order mark in the middle", b'\xef\xbb\xbf{"id":1}'),
    bad("CSV", b"id,s"),
    bad("an opening brace", b"{"),
    bad("a closing brace", b"}"),
)

FILES = (
    case("no final newline", NDJSON, TWO[:-1], "ingested"),
    case("CRLF", NDJSON, TWO.replace(b"\n", b"\r\n"), "ingested"),
    case("blank lines", NDJSON, b"\n \t\n" + TWO.replace(b"\n", b"\n\r\n"), "ingested"),
    case("a byte order mark", NDJSON, b"\xef\xbb\xbf" + TWO, "ingested"),
    case("0 bytes", NDJSON, b"", "ingested", 0),
    case("a byte order mark alone", NDJSON, b"\xef\xbb\xbf", "ingested", 0),
    case("blank lines only", NDJSON, b"\n\n \r\n", "ingested", 0),
    case("an object over three lines", NDJSON, b'{\n"id":1\n}\n' + TWO, "record", 2, 3),
    case("null as the first line", NDJSON, b"null\n" + TWO, "record", 2, 1),
    case("UTF-16", NDJSON, TWO.decode().encode("utf-16"), "record", 0, 3),
    case("gzip by another name", NDJSON, b"\x1f\x8b\x08\x00" + b"\x07" * 40, "record", 0, 1),
    case("gzip without .gz in its name", NDJSON, gzip.compress(TWO, mtime=0), "ingested"),
    case("zstd without .zst in its name", NDJSON, zstd(TWO), "ingested"),
    case("gzip", GZ, gzip.compress(TWO), "ingested"),
    case("gzip of gzip", GZ, gzip.compress(gzip.compress(TWO)), "ingested"),
    case("gzip, then a line break", GZ, gzip.compress(TWO) + b"\r\n", "ingested"),
    case("gzip of two members", GZ, gzip.compress(TWO[:9]) + gzip.compress(TWO[9:]), "ingested"),
    case(
        "gzip, a line over two members",
        GZ,
        gzip.compress(TWO[:4]) + gzip.compress(TWO[4:]),
        "ingested",
    ),
    case("gzip, then zeros", GZ, gzip.compress(TWO) + bytes(512), "ingested"),
    case("gzip of nothing", GZ, gzip.compress(b""), "ingested", 0),
    case("0 bytes for gzip", GZ, b"", "file"),
    case("gzip cut short", GZ, gzip.compress(LONG)[:-2000], "file"),
    case("gzip without its checksum", GZ, gzip.compress(TWO)[:-8], "file"),
    case("gzip with a wrong checksum", GZ, gzip.compress(TWO)[:-8] + b"12345678", "file"),
    case(
        "gzip with a byte flipped",
        GZ,
        gzip.compress(LONG)[:4000] + b"\xff" * 9 + gzip.compress(LONG)[4009:],
        "file",
    ),
    case("gzip, then something else", GZ, gzip.compress(TWO) + b"else", "file"),
    case("plain text for gzip", GZ, TWO, "ingested"),
    case("zeros for gzip", GZ, bytes(100), "file"),
    case("zstd for gzip", GZ, zstd(TWO), "ingested"),
    case("zstd", ZST, zstd(TWO), "ingested"),
    case("zstd of two frames", ZST, zstd(TWO[:4]) + zstd(TWO[4:]), "ingested"),
    case("zstd of nothing", ZST, zstd(b""), "ingested", 0),
    case("zstd cut short", ZST, zstd(LONG)[:-200], "file"),
    case("0 bytes for zstd", ZST, b"", "file"),
    case("gzip for zstd", ZST, gzip.compress(TWO), "ingested"),
    case("zstd, then a line break", ZST, zstd(TWO) + b"\n", "file"),
    case("a bad record in gzip", GZ, gzip.compress(TWO + b"oops\n"), "record", 2, 1),
    *(case(kind, f"{NDJSON}.{kind}", PACKERS[kind](TWO), "ingested") for kind in _FURTHER),
    *(case(f"{k} cut short", f"{NDJSON}.{k}", PACKERS[k](LONG)[:-9], "file") for k in _FURTHER),
)

CASES = LINES + FILES


def name_of(number: int) -> str:
    return f"{number:03d}{CASES[number].suffix or NDJSON}"


@dataclass(frozen=True)
class Outcome:
    """Result of one task over the corpus: files, and letters and rows by file name."""

    files: dict[str, FinishedFile]
    letters: dict[str, list[dict[str, Any]]]
    rows: dict[str, list[dict[str, Any]]]


def ingest(folder: Path, on_bad_record: OnBadRecord = "quarantine_record") -> Outcome:
    """Ingest the whole corpus in one task."""
    world = IngestJobHarness(folder, fields=FIELDS, metadata=("_source_file", "_source_line"))
    world.on_bad_record = on_bad_record
    for number, case in enumerate(CASES):
        world.put(name_of(number), case.file)
    # Each file alone, so that all reasons name their column.
    with mock.patch.object(task, "GROUP_BYTES", 0):
        report = world.run_task()
    return Outcome(
        by_path(report),
        _by_name(world.letters(report), "path"),
        _by_name(world.rows(report), "_source_file"),
    )


def _by_name(found: list[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for item in found:
        grouped.setdefault(item[key].rpartition("/")[2], []).append(item)
    return grouped


def table(outcome: Outcome) -> str:
    """Return the document's tables: one for each fate, with a row for each reason."""
    reasons: dict[Fate, dict[str, list[str]]] = {"ingested": {}, "record": {}, "file": {}}
    for number, case in enumerate(CASES):
        name = name_of(number)
        found = outcome.files[name]
        fate: Fate = "ingested"
        reason = f"{found.rows} rows" if case.suffix else "1 row"
        if found.outcome != "ingested":
            fate, reason = "file", f"{found.stage}: {_text(found.error)}"
        elif outcome.letters.get(name):
            count = f"; {found.rows} rows, {found.bad_rows} bad" if case.suffix else ""
            fate, reason = "record", f"{_text(outcome.letters[name][0]['error'])}{count}"
        is_packed = case.suffix not in {"", NDJSON}
        example = "" if is_packed or not case.data else f" `{_shown(case.data)}`"
        reasons[fate].setdefault(reason, []).append(f"{case.title}{example}")
    parts = []
    for (title, of), found_reasons in zip(_TITLES, reasons.values(), strict=True):
        parts += [f"\n## {title}\n", f"| {of} | input |", "|---|---|"]
        parts += [f"| {why} | {'<br>'.join(inputs)} |" for why, inputs in found_reasons.items()]
    return "\n".join(parts) + "\n\n"


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "backslashreplace")
    text = re.sub(r"[^ -~]", lambda m: m[0] if m[0].isprintable() else json.dumps(m[0])[1:-1], text)
    return text.replace("|", "\\|").replace("`", "'") + ("…" if len(data) > _SHOWN else "")


def _text(error: str) -> str:
    return re.sub(r"([|*_<>`])", r"\\\1", error)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = table(ingest(Path(folder)))
    document = DOCUMENT.read_text()
    head, _, rest = document.partition(START)
    DOCUMENT.write_text(f"{head}{START}{made}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
