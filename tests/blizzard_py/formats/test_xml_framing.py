"""Records of XML at their place, however a file is cut; damage and hostile files cost a limit."""

from __future__ import annotations

import random
import re
import resource
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import pytest

from blizzard_core.limits import (
    XML_ELEMENTS,
    XML_LEVELS,
    XML_RECORD_BYTES,
    XML_TOKEN_BYTES,
)
from blizzard_core.settings.formats import XmlOptions
from blizzard_py.formats.xml import framing
from blizzard_py.formats.xml.documents import as_utf8
from blizzard_py.formats.xml.elements import Repeated, Row, Value, read_elements
from blizzard_py.formats.xml.framing import XmlFraming
from blizzard_py.formats.xml.markup import RowNames, row_places
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.portions import RowShape

NAMESPACE = "urn:x"
OPTIONS = XmlOptions(type="xml", row_tag="event")
TEXTS = ["", "x", "5 &lt; 6", "<![CDATA[<event>]]>", "&#228;", "é", " ", "\n", "a<!-- > -->b", "]]"]
SPACES = ["", " ", "\n", "\r\n  ", "\t", "<!-- <event> -->", "<?event <event>?>"]
NAMES = ["a", "b", "event", "x:a", "events"]


@dataclass(frozen=True)
class Found:
    """Numbers, offsets and trees of records; those of bad ones with their bytes and reasons."""

    rows: tuple[tuple[int, int, Row], ...] = ()
    bad: tuple[tuple[int, int, bytes, str], ...] = ()
    failure: str = ""

    @property
    def trees(self) -> list[Row]:
        return [row for _, _, row in self.rows]


def blocks_of(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def items_of(
    blocks: Iterable[bytes], row_tag: str = "event", *, local: bool = False, **limits: int
) -> Iterator[Piece | RefusedRecord]:
    names = RowNames(row_tag.split("/"), ignore_namespace=local)
    return XmlFraming(names, RowShape(16), blocks, **limits).pieces()


def found_in(
    content: bytes,
    row_tag: str = "event",
    block: int = 1 << 20,
    *,
    local: bool = False,
    **limits: int,
) -> Found:
    """Return all records, each decoded alone."""
    names = RowNames(row_tag.split("/"), ignore_namespace=local)
    options = OPTIONS.model_copy(update={"ignore_namespace": local})
    rows: list[tuple[int, int, Row]] = []
    bad: list[tuple[int, int, bytes, str]] = []
    number = 0
    try:
        for item in items_of(blocks_of(content, block), row_tag, local=local, **limits):
            if isinstance(item, RefusedRecord):
                number += 1
                bad.append((number, item.offset, item.head, item.reason))
                continue
            places = row_places(item.data, names)
            assert len(places) == item.lines
            for start, end in places:
                number += 1
                read = read_elements(item.data[start:end], options)
                offset = item.offset + start
                if read.error or read.bad:
                    reason = read.error or read.bad[0]
                    bad.append((number, offset, item.data[start:end], reason))
                else:
                    rows.append((number, offset, read.rows[0]))
    except FileFailed as error:
        return Found(failure=error.reason)
    return Found(tuple(rows), tuple(bad))


def prefixed(name: str) -> str:
    """Return a name of ElementTree with the only prefix of our files."""
    return re.sub(r"^\{.*\}", "x:", name)


def tree_of(element: ET.Element) -> Value:
    """Return what `read_elements` makes of an element that ElementTree has read."""
    children = list(element)
    text = (element.text or "") + "".join(child.tail or "" for child in children)
    found: Row = {}

    def add(name: str, value: Value) -> None:
        if name in found:
            known = found[name]
            value = Repeated([*(known if isinstance(known, Repeated) else [known]), value])
        found[name] = value

    for name, value in element.attrib.items():
        add(f"_{prefixed(name)}", value)
    for child in children:
        add(prefixed(child.tag), tree_of(child))
    if not found:
        return text
    if text.strip(" \t\r\n"):
        add("_VALUE", text)
    return found


def reference(content: bytes, name: str = "event") -> list[Row] | None:
    """Return the records by ElementTree, by depth; None for a file that is not well-formed."""
    try:
        root = ET.fromstring(content)
    except (ET.ParseError, ValueError, LookupError):
        return None
    found: list[Row] = []

    def visit(element: ET.Element) -> None:
        if element.tag == name:
            tree = tree_of(element)
            if isinstance(tree, str):
                tree = {"_VALUE": tree} if tree.strip(" \t\r\n") else {}
            assert isinstance(tree, dict)
            found.append(tree)
        else:
            for child in element:
                visit(child)

    visit(root)
    return found


def random_element(rng: random.Random, name: str, depth: int = 0) -> str:
    attributes = "".join(
        f" {key}={quote}{rng.choice(['', '1', '>', '/', '&amp;'])}{quote}"
        for key in rng.sample(["k", "l", "x:m"], rng.choice([0, 0, 0, 1, 2]))
        for quote in [rng.choice("'\"")]
    )
    if rng.random() < 0.15:
        return f"<{name}{attributes}{rng.choice(['', ' '])}/>"
    inside = ""
    for _ in range(rng.choice([0, 1, 2, 4]) if depth < 3 else 0):
        inside += rng.choice(SPACES) + random_element(rng, rng.choice(NAMES), depth + 1)
    return f"<{name}{attributes}>{inside}{rng.choice(TEXTS)}</{name}{rng.choice(['', ' '])}>"


def random_document(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.randrange(1, 6)):
        parts += [rng.choice(SPACES), random_element(rng, "event")]
        if rng.random() < 0.3:
            parts.append(random_element(rng, rng.choice(["a", "x:b", "events"])))
        if rng.random() < 0.2:
            parts = [f"<a>{''.join(parts)}</a>"]
    head = rng.choice(["", "\ufeff", '<?xml version="1.0"?>', "<!-- <event> -->", "<!DOCTYPE r>"])
    return f"{head}<r xmlns:x='{NAMESPACE}'>{''.join(parts)}</r>{rng.choice(SPACES)}".encode()


def check_records_equal_those_of_elementtree_in_any_blocks(seed: int) -> None:
    rng = random.Random(seed)
    content = random_document(rng)
    whole = found_in(content)
    assert not whole.failure, content
    assert not whole.bad, content
    assert whole.trees == reference(content), content
    assert [number for number, *_ in whole.rows] == list(range(1, len(whole.rows) + 1))
    for _, offset, _ in whole.rows:
        assert content[offset:].startswith(b"<event")
    for block in rng.sample(range(1, 21), 2):
        assert found_in(content, block=block, least=1) == whole, content
        assert found_in(content, block=block, least=1, target=rng.randrange(1, 200)) == whole


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_records_equal_those_of_elementtree_in_any_blocks(start: int) -> None:
    for seed in range(start, start + 100):
        check_records_equal_those_of_elementtree_in_any_blocks(seed)


# Well-formed, but probably two of which the first lost its end.
SWALLOWS = re.compile(rb"<\?(?:(?!\?>).)*<\?|<!\[CDATA\[(?:(?!\]\]>).)*<!\[CDATA\[", re.DOTALL)
MARKS = b"<>/!-[]?\"'& =ae\xff\x00"


def check_damage_gives_the_same_verdicts_in_any_blocks(seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(random_document(rng))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(content))
        content[at : at + rng.randrange(3)] = bytes(rng.choices(MARKS, k=rng.randrange(3)))
    damaged = bytes(content)
    whole = found_in(damaged)
    for number, offset, raw, _ in whole.bad:
        assert number
        assert damaged[offset : offset + len(raw)] == raw, damaged
    wanted = reference(damaged)
    if wanted and b"!ENTITY" not in damaged and not SWALLOWS.search(damaged):
        assert (whole.trees, whole.bad, whole.failure) == (wanted, (), ""), damaged
    for block in rng.sample(range(1, 21), 2):
        assert found_in(damaged, block=block, least=1) == whole, damaged
        assert found_in(damaged, block=block, least=1, target=rng.randrange(1, 200)) == whole


@pytest.mark.parametrize("start", range(0, 2000, 500))
def test_damage_gives_the_same_verdicts_in_any_blocks(start: int) -> None:
    for seed in range(start, start + 500):
        check_damage_gives_the_same_verdicts_in_any_blocks(seed)


SMALL = (
    b"<?xml version='1.0'?><r><a n='1'><event k='1'><id>1</id></event>\n"
    b"<event><id>2</id><!-- c --></event></a></r>"
)


def test_damage_at_every_byte_of_a_file_is_bounded() -> None:
    for at in range(len(SMALL)):
        for byte in (b"", b"<", b">", b"x", b"\x00", b"\xff", b'"'):
            damaged = SMALL[:at] + byte + SMALL[at + 1 :]
            found = found_in(damaged)
            assert found.failure or len(found.rows) + len(found.bad) <= 4
            assert found_in(damaged, block=3, least=1) == found


def test_a_file_cut_at_any_byte_is_refused() -> None:
    for at in range(SMALL.index(b"</r>") + 4):
        assert found_in(SMALL[:at]).failure


@pytest.mark.parametrize(
    ("record", "follows"),
    [
        ("<event>2</w></event>", True),
        ("<event>2", True),
        ("<evenu>2</event>", True),
        ("<event k=2>2</event>", True),
        ("<event>\udcff</event>", True),
        ("<event>&no;</event>", True),
        ("<event k='<'>2</event>", True),
        ("<event>2</evenu>", False),
    ],
)
def test_damage_costs_one_record(record: str, *, follows: bool) -> None:
    bad = record.encode(errors="surrogateescape")
    last = b"<event>3</event>" if follows else b""
    found = found_in(b"<r><event>1</event>%b%b</r>" % (bad, last))
    assert [row["_VALUE"] for row in found.trees] == ["1", "3"][: 1 + follows]
    assert [raw for _, _, raw, _ in found.bad] == [bad]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no element"),
        (b"id,v\n1,2\n", "has no element"),
        (b"<r><a/><b/></r>", "has no element of row_tag; set format.row_tag to one of these"),
        (b"<r><event/>", "the file ends within <r> at byte 11"),
        (b"<r><event/></s>", "</s> closes another element at byte 11"),
        (b"<r><event/><!-- </r>", "the file ends in a comment or instruction"),
        (b"<r><event/>< a></r>", "a tag that is none at byte 11"),
        (b"<!DOCTYPE r [<!ENTITY a 'x'>]><r><event>&a;</event></r>", "its DTD declares entities"),
        (b"<!DOCTYPE r [<!ATTLIST event k CDATA '1'>]><r/>", "its DTD declares entities"),
        (b"<!DOCTYPE r [<!ENTITY a SYSTEM 'file:///etc/passwd'>", "its DTD declares entities"),
        (b"<r><!DOCTYPE r><event/></r>", "a DTD within the root element at byte 3"),
        (b"<?xml version='1.0' encoding='ebcdic'?><r/>", "declares the encoding 'ebcdic'"),
    ],
)  # fmt: skip
def test_a_wrong_structure_fails_the_file(content: bytes, reason: str) -> None:
    failure = ""
    try:
        list(items_of(as_utf8(blocks_of(content, 7))))
    except FileFailed as error:
        failure = error.reason
    assert reason in failure


def test_rows_are_found_by_depth_path_and_name() -> None:
    nested = b"<r><event><event>view</event></event></r>"
    assert found_in(nested).trees == [{"event": "view"}]
    grouped = b"<r><a><b>1</b></a><c><b>2</b></c><x:a><b>3</b></x:a></r>"
    assert found_in(grouped, "a/b").trees == [{"_VALUE": "1"}]
    assert found_in(grouped, "b").trees == [{"_VALUE": text} for text in "123"]
    assert found_in(grouped, "a/b", local=True).trees == [{"_VALUE": "1"}, {"_VALUE": "3"}]
    prefixed = b"<r><x:event><y:v>1</y:v></x:event></r>"
    assert found_in(prefixed, "x:event").trees == [{"y:v": "1"}]
    assert found_in(prefixed, local=True).trees == [{"v": "1"}]
    assert found_in(b"<event>1</event>\n<event>2</event>").trees == [
        {"_VALUE": "1"},
        {"_VALUE": "2"},
    ]
    for empty in (b"<r/>", b"<r> </r>"):
        assert found_in(empty) == Found()
    assert found_in(b"<r><a></a></r>", "a/b") == found_in(b"<r><a/></r>", "a/b") == Found()


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "iso-8859-1", "cp1250", "gb18030"],
)
def test_encodings_are_read(encoding: str) -> None:
    text = "<r><event>ü</event></r>"
    declared = encoding.removesuffix("-sig").removesuffix("-le")
    content = f"<?xml version='1.0' encoding='{declared}'?>{text}".encode(encoding)
    for block in (1, 3, 1 << 20):
        [piece] = items_of(as_utf8(blocks_of(content, block)))
        assert isinstance(piece, Piece)
        assert piece.data == "<event>ü</event>".encode()
    assert reference(content) == [{"_VALUE": "ü"}] or encoding in {"utf-32", "gb18030"}


def test_bytes_that_are_no_text_make_one_bad_record() -> None:
    content = (
        b"<?xml version='1.0' encoding='cp1252'?><r><event>\x81</event><event>\x80</event></r>"
    )
    found = found_in(b"".join(as_utf8(blocks_of(content, 5))))
    assert (len(found.bad), found.trees) == (1, [{"_VALUE": "€"}])
    with pytest.raises(FileFailed, match="is not utf-16"):
        list(as_utf8(iter(["<r/>".encode("utf-16") + b"\x00\xd8"])))


def refused(content: bytes) -> tuple[RefusedRecord, int]:
    """Return the only refused record, and the number of the others."""
    found = list(items_of(blocks_of(content, 1 << 20)))
    [bad] = [item for item in found if isinstance(item, RefusedRecord)]
    return bad, sum(item.lines for item in found if isinstance(item, Piece))


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 5000])
@pytest.mark.parametrize("block", [1, 700, 1 << 20])
def test_a_record_above_the_limit_is_refused(size: int, block: int) -> None:
    record = b"<event>" + b"x" * (size - 15) + b"</event>"
    content = b"<r><event>1</event>" + record + b"<event>2</event></r>"
    found = list(items_of(blocks_of(content, block), limit=1000, least=1))
    bad = [item for item in found if isinstance(item, RefusedRecord)]
    if len(record) <= 1000:
        assert not bad
        return
    [one] = bad
    assert (one.offset, one.length, one.reason) == (19, len(record), "longer than 1,000 bytes")
    assert record.startswith(one.head)
    assert [item.data for item in found if isinstance(item, Piece)] == [
        b"<event>1</event>",
        b"<event>2</event>",
    ]


def test_a_long_record_costs_itself() -> None:
    text = b"<v>" + b"x" * (XML_RECORD_BYTES + 5) + b"</v>"
    bad, others = refused(b"<r><event/><event>%b</event><event/></r>" % text)
    assert (bad.length, others) == (len(text) + 15, 2)
    with pytest.raises(FileFailed, match="a record that is never closed at byte 11"):
        list(items_of(blocks_of(b"<r><event/><event>%b</r>" % text, 1 << 20)))


def test_a_long_token_is_refused() -> None:
    long = b"a" * XML_TOKEN_BYTES
    for inside in (b"<%b/>", b"<a b='%b'/>", b"<!-- %b -->", b"<?a %b?>"):
        bad, others = refused(b"<r><event>%b</event><event/></r>" % (inside % long))
        assert bad.reason.endswith("of more than 1,048,576 bytes")
        assert others == 1
    assert not found_in(b"<r><event><![CDATA[%b]]></event></r>" % long).bad
    assert not found_in(b"<r><event><a>%b</a></event></r>" % long).bad
    bad, others = refused(b"<r><event k='%b'/><event/></r>" % long)
    assert (bad.reason, others) == ("its tag is not well-formed", 1)
    assert "a tag that is none" in found_in(b"<r><a k='%b'/><event/></r>" % long).failure


def test_deep_elements_are_refused() -> None:
    deep = XML_LEVELS * b"<a>" + XML_LEVELS * b"</a>"
    bad, others = refused(b"<r><event>%b%b</event><event/></r>" % (deep, b" " * XML_TOKEN_BYTES))
    assert (bad.reason, others) == ("has elements of more than 64 levels", 1)
    assert "64 levels" in found_in(b"<r>%b<event/></r>" % deep).failure


def test_a_record_of_too_many_elements_is_refused() -> None:
    bad, others = refused(b"<r><event>%b</event><event/></r>" % (b"<a/>" * (XML_ELEMENTS + 1)))
    assert (bad.reason, others) == ("has more than 262,144 elements", 1)


def test_records_that_are_never_closed_cost_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framing, "XML_REREAD_BYTES", 1 << 20)
    body = b"<event>" * 200_000
    started = time.process_time()
    with pytest.raises(FileFailed, match="too many records that are never closed"):
        list(items_of(blocks_of(b"<r>" + body + b"</r>", 1 << 20)))
    assert time.process_time() - started < 20


# Records of groups; comments and sections in them show where damage begins and ends.
GROUPS: dict[str, tuple[str, str, str]] = {
    "row": ("<all>", "</all>", "rows"),
    "rows/row": ("<all>", "</all>", "rows"),
    "all/rows/row": ("<all>", "</all>", "rows"),
    "sub/rows/row": ("<all><sub>", "</sub></all>", "rows"),
    "rows/rows/row": ("<all><rows>", "</rows></all>", "rows"),
}
INSERTED = (
    b"", b"", b"x", b"<", b">", b'"', b"&", b"\0\0\0", b"</row>", b"<row>", b"\xff", b"<a>",
    b"</a>", b"/>", b"<rows>", b"</rows>", b"--", b"]]>", b"<!--", b"<![CDATA[", b"<?", b"?>",
)  # fmt: skip


def random_groups(rng: random.Random, path: str) -> bytes:
    begin, end, group = GROUPS[path]
    parts = []
    for number in range(rng.randint(1, 4)):
        inside = ""
        for record in range(rng.randint(1, 5)):
            more = rng.choice(["", "", "<w/>", "<!-- c -->", "<w><![CDATA[<row>]]></w>", "<?p i?>"])
            inside += f'<row k="{number}{record}"><id>{number}{record}</id>{more}<v>a</v></row>'
            inside += rng.choice(["", "", "\n", "<!-- d -->"])
        parts.append(f'<{group} n="{number}">{inside}</{group}>')
        parts.append(rng.choice(["", "\n", "<other><row><id>x</id></row></other>"]))
    return f"{begin}{''.join(parts)}{end}".encode()


def check_damage_loses_no_other_record(seed: int) -> None:
    rng = random.Random(seed)
    path = rng.choice([*GROUPS])
    content = random_groups(rng, path)
    whole = found_in(content, path)
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.choice([0, 1, 2, 5, 20, 60]))
    put = rng.choice(INSERTED)
    damaged = content[:start] + put + content[end:]
    found = found_in(damaged, path, least=1, block=rng.choice([1, 3, 1 << 20]))
    if found.failure:
        return
    rest = [(offset - start, tree) for _, offset, tree in found.rows]
    letters = [(offset, offset + len(raw)) for _, offset, raw, _ in found.bad]
    places = list(re.finditer(rb"<row .*?</row>|<row>.*?</row>", content))
    touched = 0
    for _, offset, tree in whole.rows:
        length = next(place.end() - offset for place in places if place.start() == offset)
        if offset < end and offset + length > start:
            touched += 1
            continue
        moved = offset - start if offset < start else offset - end + len(put)
        at = moved + start
        if any(begin <= at and at + length <= stop for begin, stop in letters):
            touched += 1  # a CDATA section without its end
        else:
            assert rest.count((moved, tree)) == 1, (seed, path, damaged)
    # A cut that joins two records leaves one well-formed record.
    assert len(found.rows) + len(found.bad) >= len(whole.rows) - touched, (seed, path, damaged)
    assert len(found.bad) <= touched + 3, (seed, path, damaged)


@pytest.mark.parametrize("start", range(0, 4000, 1000))
def test_damage_loses_no_other_record(start: int) -> None:
    for seed in range(start, start + 1000):
        check_damage_loses_no_other_record(seed)


# The beginning, what is repeated how often, and the end.
HOSTILE: dict[str, tuple[bytes, bytes, int, bytes]] = {
    "laughs": (
        b'<!DOCTYPE r [<!ENTITY a "ha">', b'<!ENTITY b "&a;&a;&a;">', 30,
        b"]><r><event>&b;</event></r>",
    ),
    "external": (b"<!DOCTYPE r SYSTEM 'file:///dev/zero'><r>", b"<event>&a;</event>", 3, b"</r>"),
    "deep": (b"<r><event>", b"<a>", 100_000, b"</a>" * 100_000 + b"</event></r>"),
    "deep in a long record": (b"<r><event>", b"<a>", 1_000_000, b"</event></r>"),
    "attributes": (b"<r><event ", b"a='' ", 1_000_000, b"/></r>"),
    "attributes within": (b"<r><event><a ", b"a='' ", 1_000_000, b"/></event></r>"),
    "tag of 64 MB": (b"<r><", b"a" * 1024, 64 << 10, b"/></r>"),
    "row tag of 64 MB": (b"<r><event k='", b"a" * 1024, 64 << 10, b"'/></r>"),
    "open quote": (b"<r><event k='", b"a" * 1024, 64 << 10, b""),
    "comment of 64 MB": (b"<r><event/><!--", b"-" * 1024, 64 << 10, b"</r>"),
    "comment within": (b"<r><event><!--", b" " * 1024, 15 << 10, b"--></event></r>"),
    "text of 64 MB": (b"<r>", b"x" * 1024, 64 << 10, b"<event/></r>"),
    "record of 64 MB": (b"<r><event>", b"<a>x</a>", 8 << 20, b"</event></r>"),
    "elements": (b"<r><event>", b"<a/>", 250_000, b"</event></r>"),
    "empty records": (b"<r>", b"<event/>", 500_000, b"</r>"),
    "parents": (b"<r>", b"<a>", 1_000_000, b""),
    "no tags": (b"<r>", b"<", 16 << 20, b"</r>"),
    "DTD": (b"<!DOCTYPE r [", b"<!ELEMENT a ANY>", 1_000_000, b""),
    "end tags": (b"<r><event/>", b"</event>", 100_000, b"</r>"),
    "blanks in an end tag": (b"<r><event></event", b" " * 1024, 64 << 10, b""),
}  # fmt: skip
HARMLESS = {"text of 64 MB", "elements", "empty records"}


def hostile_blocks(name: str) -> Iterator[bytes]:
    begin, part, times, end = HOSTILE[name]
    yield begin
    at_once = max(1, (256 << 10) // len(part))
    for start in range(0, times, at_once):
        yield part * min(at_once, times - start)
    yield end


def cost_of(name: str) -> tuple[float, float, int, str]:
    """Return CPU seconds, more MB, bad records and the failure of a hostile file."""
    list(items_of([b"<r><event/></r>"]))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    bad, failure = 0, ""
    try:
        for item in items_of(as_utf8(hostile_blocks(name))):
            if isinstance(item, RefusedRecord):
                bad += 1
            else:
                read = read_elements(item.data, OPTIONS)
                bad += len(read.bad) + bool(read.error)
    except FileFailed as error:
        failure = error.reason
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return time.process_time() - started, more / 1024, bad, failure


def test_hostile_files_cost_bounded_memory_and_time() -> None:
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, processes, max_tasks_per_child=1) as pool:
        found = dict(zip(HOSTILE, pool.map(cost_of, HOSTILE), strict=True))
    assert {name: cost for name, cost in found.items() if cost[0] > 20 or cost[1] > 200} == {}
    without_reason = {name for name, (_, _, bad, failure) in found.items() if not (bad or failure)}
    assert without_reason == HARMLESS


def test_damage_that_may_hide_records_fails_the_file() -> None:
    groups = ["".join(f"<b>{n}</b>" for n in range(50))] * 3
    content = "<r>" + "".join(f'<a n="{n}">{each}</a>' for n, each in enumerate(groups)) + "</r>"
    assert len(found_in(content.encode(), "a/b").rows) == 150
    damaged = content.replace('n="1"><b>', 'n="1\0\0\0\0\0b>')
    assert "the tag of a parent may be damaged" in found_in(damaged.encode(), "a/b").failure
    anywhere = found_in(damaged.encode(), "b")
    assert (len(anywhere.rows), len(anywhere.bad)) == (149, 1)
    inserted = content.replace("</a><a", "</a><c><a", 1).replace(
        "<b>9</b></a></r>", "9</b></a></r>"
    )
    assert found_in(inserted.encode(), "a/b").failure
    elsewhere = b"<r><a><b>1</b><b>2</a><c><b>3</b></c></r>"
    assert "row_tag in another parent" in found_in(elsewhere, "a/b").failure


def test_a_comment_without_its_end_costs_its_record() -> None:
    record = b"<event>%d<!-- c --></event>"
    records = [record % number for number in range(4)]
    for end in (b" -x>", b" --x", b""):
        bad = records[1].replace(b" -->", end)
        found = found_in(b"<r>%b</r>" % b"\n".join([records[0], bad, *records[2:]]))
        assert [row["_VALUE"] for row in found.trees] == ["0", "2", "3"]
        assert [raw for _, _, raw, _ in found.bad] == [bad]
    outside = b"<r>%b<!-- d -x>%b<!-- d -->%b</r>" % (*records[:2], records[2])
    assert "a comment or instruction that is not closed" in found_in(outside).failure


def test_a_section_without_its_end_shows_the_records_in_it() -> None:
    records = [b"<event>%d<v><![CDATA[<event>]]></v></event>" % number for number in range(4)]
    bad = records[1].replace(b"]]>", b"]x>")
    found = found_in(b"<r>%b</r>" % b"\n".join([records[0], bad, *records[2:]]))
    assert [row["_VALUE"] for row in found.trees] == ["0", "3"]
    assert [raw for _, _, raw, _ in found.bad] == [bad + b"\n" + records[2]]
    many = b"<event>2</event>" * 5000
    found = found_in(b"<r>%b%b%b</r>" % (bad, many, records[3]))
    assert "a CDATA section that is not closed" in found.failure
