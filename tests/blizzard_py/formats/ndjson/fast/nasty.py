"""Lines for the differential fuzz, made from a seed: like files are, and then spoilt.

A chunk has a schema, a way of writing and a share of lines that are spoilt: in their form (names
left out, twice, in another order, unknown ones, space between tokens) or in their bytes.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from blizzard_core.settings.schema import UnexpectedFields
from blizzard_py.job import FieldSpec
from tests.support.corpus import FIELDS as CORPUS_FIELDS
from tests.support.corpus import LINES as CORPUS
from tests.support.ingest_job_harness import specs

CLICKS = (
    FieldSpec("id", "int64", nullable=False),
    FieldSpec("time", "timestamp", nullable=False),
    *specs(user="string", url="string", country="string", duration="float64"),
    *specs(bytes="int64", mobile="boolean"),
)
EDITS = (
    *specs(time="timestamp", channel="string", cityName="string", comment="string"),
    *specs(countryIsoCode="string", isMinor="boolean", isNew="boolean", metroCode="int64"),
    *specs(namespace="string", page="string", user="string", delta="int32", added="int64"),
)
ALL = (
    FieldSpec("id", "int64", nullable=False),
    *specs(s="string", i="int32", l="int64", f="float64", g="float32", b="boolean"),
    *specs(t="timestamp", d="date", y="binary", j="json"),
    FieldSpec("ts", "timestamp", nullable=True, unit="s"),
    FieldSpec("tm", "timestamp", nullable=True, unit="ms"),
    FieldSpec("tu", "timestamp", nullable=True, unit="us"),
    FieldSpec("p", "decimal", nullable=True, precision=9, scale=2),
    FieldSpec("q", "decimal", nullable=True, precision=38, scale=12),
    FieldSpec("c", "string", nullable=True, coerce=True),
    FieldSpec("ø", "string", nullable=True),
)
PLAIN = tuple(f for f in ALL if f.type != "json" and not f.coerce)
REQUIRED = tuple(
    FieldSpec(
        f.name, f.type, nullable=False, precision=f.precision, scale=f.scale,
        unit=f.unit, coerce=f.coerce,
    )
    for f in ALL
)  # fmt: skip
GEO = (
    FieldSpec("lat", "float64", nullable=False),
    *specs(lon="float32", city="string", at="timestamp", n="int64"),
    FieldSpec("at2", "struct", nullable=True, children=specs(d="date", y="binary", b="boolean")),
)
READ = (
    FieldSpec("id", "int64", nullable=False),
    *specs(s="string"),
    FieldSpec("tags", "list", nullable=True, children=specs(element="string")),
    FieldSpec("geo", "struct", nullable=True, children=GEO),
    *specs(f="float64"),
    FieldSpec("need", "list", nullable=False, children=(FieldSpec("element", "int32", False),)),
    FieldSpec(
        "items", "list", nullable=True, children=(FieldSpec("element", "struct", True, GEO),)
    ),
)
EXTRACTED = (
    FieldSpec("id", "int64", nullable=False),
    FieldSpec("attrs", "map", nullable=True, children=specs(value="string")),
    FieldSpec("more é", "struct", nullable=True, children=specs(j="json", n="int64")),
    FieldSpec("counts", "map", nullable=False, children=(FieldSpec("value", "int64", False),)),
    *specs(s="string"),
)
NESTED = (READ, EXTRACTED, READ[1:4], (*READ, *EXTRACTED[1:4]), EXTRACTED[1:2])
SCHEMAS = (CLICKS, EDITS, ALL, ALL, PLAIN, PLAIN, REQUIRED, CORPUS_FIELDS, *NESTED)

ANYTHING = (
    "null", "true", "false", "0", "-0", "-1", "1.0", "1e3", "1E-2", "01", "+1", "-", ".5", "5.",
    '""', '"x"', '"null"', '"1"', "[]", "{}", "[1,2]", '{"a":1}', '{"a":[{"b":null}]}', "[1, 2]",
    "NaN", "Infinity", "-Infinity", "nul", "tru", "1e400", "1.5", "--1", "1_0", "0x10", "'x'",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "2147483648",
    "123456789012345678901234567890", "0.1234567890123456789012345678901", '"2024-02-29"',
    '"2024-02-29T12:00:00Z"', "1e-7", '"x"\f', "\f1", "true\v", '"12', '"1.5 ', "-01",
    "[" * 40 + "]" * 40, "undefined", "", '"\\ud800"',
)  # fmt: skip
TEXTS = (
    "", "a", "text", "}{", "a,b", "ž", "🐎", "日本語", "\u2028", "\x7f", "null", "x" * 15, "x" * 16,
    "x" * 17, "y" * 31, "z" * 33, "é" * 8, "w" * 500, "a: b, c", '"quoted"', "back\\slash", "/",
    "line\nend", "tab\tand\r", "\b\f", "nul\0in", "\x1f", "k" * 4000,
)  # fmt: skip
ESCAPED = (
    "\\u0041", "\\u00e9", "\\u20AC", "\\ud83d\\ude00", "\\ud83d\\u0041", "\\ude00", "\\uD800",
    "\\/", "\\b\\f\\n\\r\\t", '\\"', "\\\\", "\\u0000", "\\x41", "\\u12", "\\u00G0", "\\",
    "\x1f", "\x01", "\\ud83d", "\\ude00\\ude00", "\\udbff\\udfff",
    "\\ud800\\udc00", "\\u07ff\\u0800\\uffff",
)  # fmt: skip
TIMES = (
    "2024-05-06T12:00:00Z", "2024-05-06 12:00:00", "2024-05-06T12:00:00", "2024-05-06",
    "2024-05-06T12:00:00.1Z", "2024-05-06T12:00:00.123456", "2024-05-06T12:00:00.1234567Z",
    "2024-05-06T12:00:00.Z", "2024-05-06T12:00:00+02:00", "2024-05-06T12:00:00-0330",
    "2024-05-06T12:00:00+05", "2024-05-06T23:59:59.999999-14:00", "2024-05-06T24:00:00Z",
    "2024-05-06T12:60:00Z", "2024-05-06T12:00:60Z", "2024-02-30T00:00:00Z", "2024-13-01",
    "2023-02-29", "1900-02-29", "2000-02-29", "2100-03-01", "0000-01-01", "0001-01-01",
    "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.5Z", "1970-01-01", "2024-00-10",
    "2024-05-00", "2024-05-32", "2024-5-6", " 2024-05-06", "2024-05-06 ", "2024-05-06t12:00:00z",
    "2024-05-06T12:00", "2024-05-06T12", "2024-05-06T12:00:00 Z", "2024-05-06T12:00:00+24:00",
    "2024-05-06T12:00:00+14:60", "2024/05/06", "12:00:00", "20240506T120000Z", "2024-12-31",
    "2024-05-06T12-00:00Z", "2024-05-06T12:00:00,5Z", "2024-06-30T00:00:00+23:59",
    "0001-01-01T00:00:00+01:00", "0001-01-01T00:59:59.999999+01:00", "0001-01-01T01:00:00+01:00",
    "9999-12-31T23:59:59-01:00", "9999-12-31T23:00:00-01:00", "9999-12-31T22:59:59.999999-01:00",
    "0000-12-31T23:00:00-01:00", "2024-05-06T12:00:00.000001+00:00", "1582-10-15",
    "2024-03-01T00:00:00Z",
)  # fmt: skip
BASE64 = ("", "AA==", "AAE=", "AAEC", "AAECAw==", "AB==", "AAF=", "AAEC=", "A", "AA", "AAE", "AA=A",
          "A-_A", "AA==AA==", "AAE\\u003d", "QUJD\\n", "+/+/", "====", "AA= =", "zZ09")  # fmt: skip
BREAKS = (b"\n", b"\n", b"\n", b"\n", b"\r\n", b" \t\n", b"\n\n", b"\n \r\t\n")
PIECES = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"\r", b"\0", b"\x01", b"\x1f",
    b"\x7f", b"\x80", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xc0\xaf", b"null", b"true", b"1",
    b"0", b"-", b".", b"e5", b"}{", b"},{", b'{"id":', b'","', b'":"', b"//", b"\xef\xbb\xbf",
    b'\\"',     b"\\u",
)  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """Lines to parse, and how."""

    fields: tuple[FieldSpec, ...]
    unexpected: UnexpectedFields
    tolerant: bool
    data: bytes


def chunk(seed: int, lines: int, odd: float | None = None) -> Chunk:
    """The chunk of that seed: always the same. ``odd`` is the share of values that are."""
    random = Random(seed)
    fields = random.choice(SCHEMAS)
    unexpected = random.choice(("ignore", "ignore", "ignore", "capture", "fail"))
    tolerant = random.random() < 0.9
    # Few files are spoilt all over, and half a line's neighbours matter as much as the line.
    spoilt = random.choice((0.0, 0.0, 0.005, 0.02, 0.1)) if tolerant else 1 / lines
    form = _Form(random, fields, unexpected, odd)
    parts: list[bytes] = []
    crooked = random.random() < 0.2
    for _ in range(lines):
        if fields is CORPUS_FIELDS and random.random() < 0.03:
            line = random.choice(CORPUS).data
        else:
            line = form.line()
        if random.random() < spoilt:
            line = damaged(random, line)
        elif parts and random.random() < 0.03:
            line = random.choice(parts[::2])  # also a bad one, which has a verdict already
        parts += (line, random.choice(BREAKS) if crooked else b"\n")
    return Chunk(fields, unexpected, tolerant, b"".join(parts))


def damaged(random: Random, line: bytes) -> bytes:
    """With some bytes changed; it may be several lines then."""
    data = bytearray(line)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                del data[at : at + random.choice((1, 1, 2, 5))]
            case 2:
                data[at:at] = random.choice(PIECES)
            case 3:
                data[at:at] = data[at : at + random.randrange(1, 30)]
            case 4:
                del data[at:]
            case 5:
                data[at : at + 1] = random.choice(PIECES)
            case 6 if at < len(data):
                data[at] = random.randrange(256)
    return bytes(data)


class _Form:
    """The style of the lines of a chunk."""

    def __init__(
        self,
        random: Random,
        fields: Sequence[FieldSpec],
        unexpected: UnexpectedFields,
        odd: float | None,
    ) -> None:
        self._random = random
        self._fields = list(fields)
        if random.random() < 0.3:
            random.shuffle(self._fields)
        self._comma, self._colon = random.choice(((",", ":"), (", ", ": "), (" ,\t", " : ")))
        self._shuffled = random.choice((0.0, 0.0, 0.05, 1.0))
        self._missing = random.choice((0.0, 0.01, 0.2))
        self._nulls = random.choice((0.0, 0.05, 0.5))
        self._odd = random.choice((0.0, 0.0, 0.0005, 0.0005, 0.005, 0.05)) if odd is None else odd
        self._unknown = random.choice((0.0, 0.02, 0.02, 1.0)) if unexpected == "ignore" else 0.01
        self._ascii = random.random() < 0.3

    def line(self) -> bytes:
        random = self._random
        members = []
        for spec in self._fields:
            if random.random() < self._missing and (spec.nullable or random.random() < 0.05):
                continue
            members.append((self._name(spec.name), self._value(spec)))
        if random.random() < self._unknown:
            name = random.choice(("more", "x", "i d", "ID", "", "é", "n" * 130, "more", "id2"))
            value = random.choice(ANYTHING) if random.random() < 0.02 else self._harmless()
            members.insert(random.randrange(len(members) + 1), (json.dumps(name), value))
        if random.random() < self._odd * 0.1 and members:
            members.append(random.choice(members))
        if random.random() < self._shuffled:
            random.shuffle(members)
        text = self._comma.join(f"{name}{self._colon}{value}" for name, value in members)
        return f"{{{text}}}".encode("utf-8", "surrogatepass")

    def _harmless(self) -> str:
        random = self._random
        return random.choice(
            ("1", '"text"', "[1,[2,3]]", '{"deep":{"er":[null,true,"x"]}}', "1.25", "{ }", "[ ]",
             '[{"a": "b"} , 3]', '"\\u00e9\\n"', "-17", "null")
        )  # fmt: skip

    def _name(self, name: str) -> str:
        if self._random.random() < self._odd * 0.1:
            return f'"\\u{ord(name[0]):04x}{name[1:]}"'
        return f'"{name}"'

    def _value(self, spec: FieldSpec) -> str:
        random = self._random
        if spec.nullable and random.random() < self._nulls:
            return "null"
        if random.random() < self._odd:
            return random.choice(ANYTHING)
        odd = random.random() < self._odd * 3
        if spec.coerce:
            kind = random.choice(("string", "int64", "boolean", "json", "float64"))
        else:
            kind = "epoch" if spec.unit != "iso" else spec.type
        return _VALUES[kind](random, spec, odd, self._ascii)


def _string(random: Random, _spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    if odd:
        return (
            f'"{random.choice(("", "ab"))}{random.choice(ESCAPED)}{random.choice(("", "c" * 14))}"'
        )
    if random.random() < 0.5:
        return json.dumps(random.choice(TEXTS), ensure_ascii=ascii_)
    return f'"user-{random.randrange(10**6):06d}{"-" * random.randrange(30)}"'


def _integer(random: Random, spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    bits = 31 if spec.type == "int32" else 63
    if odd:
        edge = random.choice((2**31, 2**63, 10**17, 10**18, 10**19, 2**53))
        return str(random.choice((-1, 1)) * (edge + random.randrange(-2, 3)))
    return str(random.randrange(-(2**bits), 2**bits) >> random.randrange(bits))


def _real(random: Random, _spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    if odd:
        whole = "".join(random.choices("0123456789", k=random.randrange(1, 22))).lstrip("0") or "0"
        behind = "".join(random.choices("0123456789", k=random.randrange(1, 30)))
        return f"{random.choice(('', '-'))}{whole}.{behind}"
    value = 1 + random.random()
    halfway = (Decimal(value) + Decimal(math.nextafter(value, 2))) / 2
    return random.choice(
        (
            repr(random.random()),
            f"{random.random() * 20:.3f}",
            repr(random.uniform(-1e6, 1e6)),
            str(random.randrange(-(10**6), 10**6)),
            # Between two doubles, exactly and to eighteen digits: where rounding shows.
            f"{random.getrandbits(53) | 1 << 52}.5",
            f"{halfway:.18f}",
        )
    )


def _boolean(random: Random, _spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    return (
        random.choice(("True", "0", '"true"', "truefalse"))
        if odd
        else random.choice(("true", "false"))
    )


def _timestamp(random: Random, _spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    if odd:
        return f'"{random.choice(TIMES)}"'
    year, month = random.randrange(1, 10_000), random.randrange(1, 13)
    day = f"{year:04d}-{month:02d}-{random.randrange(1, 30):02d}"
    time = f"{random.randrange(24):02d}:{random.randrange(60):02d}:{random.randrange(60):02d}"
    behind = random.choice(("", "", ".5", ".123", ".000001", ".999999", ".12", ".1234"))
    zone = random.choice(("Z", "Z", "", "+02:00", "-09:30", "+00:00"))
    return f'"{day}{random.choice("T ")}{time}{behind}{zone}"'


def _date(random: Random, _spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    if odd:
        return f'"{random.choice(TIMES)}"'
    year = random.choice((random.randrange(1, 10_000), random.randrange(1895, 2105)))
    return f'"{year:04d}-{random.randrange(1, 13):02d}-{random.randrange(1, 30):02d}"'


def _epoch(random: Random, spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    scale = {"s": 6, "ms": 3, "us": 0}[spec.unit]
    limit = 253_402_300_799_999_999 if odd else 2 * 10**15
    digits = str(random.randrange(10**6, limit + odd * 10**17)).rjust(scale + 1, "0")
    whole, behind = (digits[:-scale], digits[-scale:]) if scale else (digits, "")
    behind = behind[: random.randrange(len(behind) + 1)] + (
        "0" * random.randrange(4) if odd else ""
    )
    text = f"{random.choice(('', '', '-'))}{whole}{'.' if behind else ''}{behind}"
    return f'"{text}"' if random.random() < 0.2 else text


def _decimal(random: Random, spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    room = spec.precision - spec.scale if odd else min(6, spec.precision - spec.scale)
    whole = str(random.randrange(10 ** random.randrange(1, room + 1 + 2 * odd)))
    behind = "".join(random.choices("0123456789", k=random.randrange(spec.scale + 1 + 2 * odd)))
    behind += "0" * random.randrange(3) * odd
    text = f"{random.choice(('', '', '-'))}{whole}{'.' if behind else ''}{behind}"
    return f'"{text}"' if random.random() < 0.3 else text


def _binary(random: Random, _spec: FieldSpec, odd: bool, _ascii: bool) -> str:
    if odd:
        return f'"{random.choice(BASE64)}"'
    return f'"{base64.b64encode(random.randbytes(random.randrange(40))).decode()}"'


def _json(random: Random, spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    if odd:
        return random.choice((*ANYTHING, '{"a": 1}', "{ }", '[ "a" ]', '{"a":1 }', '{"a" :1}'))
    if random.random() < 0.5:
        return random.choice(
            ('{"a":1,"b":[true,null]}', "[1,2,3]", '"text with space"', "1.10", "-0.0",
             '{"k":"v v","k":2}', "[[],{}]", '{"é":"\\u00e9"}', "12345678901",
             '{"a": "b  c", "d" : [1, -2.5 ,null] }', '{\t"t":\t"\\t"}', "[ 1,\r2 ]",
             '{"q": "say \\" : \\\\", "r":"{ }"}')
        )  # fmt: skip
    return _string(random, spec, odd, ascii_)


def _inside(random: Random, spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    if spec.nullable and random.random() < 0.1:
        return "null"
    if odd and random.random() < 0.2:
        return random.choice(ANYTHING)
    return _VALUES["epoch" if spec.unit != "iso" else spec.type](
        random, spec, odd and random.random() < 0.1, ascii_
    )


def _struct(random: Random, spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    space = random.choice(("", "", " "))
    members = [
        f'"{child.name}":{space}{_inside(random, child, odd, ascii_)}'
        for child in spec.children
        if not (child.nullable or odd) or random.random() < 0.9
    ]
    if random.random() < 0.02 or odd:
        members.append(random.choice(('"more":1', '"more":{"x":[1]}', '"\\u0041":"y"')))
    if odd and random.random() < 0.1:
        members.append(random.choice(members))
    return "{" + f",{space}".join(members) + "}"


def _list(random: Random, spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    [item] = spec.children
    count = random.choice((0, 1, 2, 3, 9))
    return "[" + ", ".join(_inside(random, item, odd, ascii_) for _ in range(count)) + "]"


def _map(random: Random, spec: FieldSpec, odd: bool, ascii_: bool) -> str:
    [value] = spec.children
    keys = random.sample(("a", "b", "ž", "", "k k", "\\n", "a"), random.randrange(4))
    members = (f'"{key}":{_inside(random, value, odd, ascii_)}' for key in keys)
    return "{" + ",".join(members) + "}"


_VALUES: dict[str, Callable[[Random, FieldSpec, bool, bool], str]] = {
    "string": _string,
    "int32": _integer,
    "int64": _integer,
    "float32": _real,
    "float64": _real,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "epoch": _epoch,
    "date": _date,
    "decimal": _decimal,
    "binary": _binary,
    "json": _json,
    "struct": _struct,
    "list": _list,
    "map": _map,
}
