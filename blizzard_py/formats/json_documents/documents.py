"""The format of JSON documents: an array of records, or objects behind each other."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from blizzard_core.limits import RAW_BYTES
from blizzard_core.settings.formats import JsonOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.json_documents.elements import is_one_element
from blizzard_py.formats.json_documents.records import Unspaced, as_written, read_records
from blizzard_py.formats.json_documents.text import SLICE_BYTES, DocumentText
from blizzard_py.formats.ndjson.lines import NdjsonDecoder, line_parser
from blizzard_py.formats.ndjson.parse import row_shape
from blizzard_py.formats.protocol import BadRecord, OpenFile, Parsed, RecordBytes
from blizzard_py.job import RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.portions import RowShape, portions

_BLANKS = b" \t\r"
_WHITE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON documents as a `Format`: ``keys`` lead to the array of records, from the root."""

    keys: tuple[str, ...] = ()
    encoding: str = "utf-8"
    slice_bytes: int = SLICE_BYTES

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield records as lines."""
        blocks = file.blocks()
        if self.encoding != "utf-8":
            blocks = _transcoded(blocks, self.encoding)
        text = DocumentText(blocks, self.slice_bytes)
        return _portions(read_records(text, self.keys, file.path), row_shape(schema.fields))

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> JsonDecoder:
        """Return the parser of lines with these columns."""
        return JsonDecoder(line_parser(schema, tolerant=tolerant, fast=fast))

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the letters' records as an array, in which no byte of a record changes.

        What is not one element has a file of its own, since it might swallow others. The mark
        before them makes that nothing in a record is taken for another encoding or codec.
        """
        elements: list[bytes] = []
        others: list[bytes] = []
        for letter in letters:
            raw = letter.raw.strip(_WHITE)
            (elements if is_one_element(raw) else others).append(raw)
        array = [b"[%b]\n" % b",\n".join(elements)] if elements else []
        return [codecs.BOM_UTF8 + content for content in (*array, *others)]

    def replay_settings(self) -> JsonOptions:
        """Return documents in UTF-8 whose root is the array."""
        return JsonOptions(type="json")


def format_of(settings: JsonOptions) -> JsonFormat:
    """Return the format with its options."""
    return JsonFormat(settings.keys, settings.encoding)


class JsonDecoder(NdjsonDecoder):
    """The decoder of NDJSON; bad records are shown as the file has them."""

    def decode(self, piece: Piece) -> Parsed:
        """Decode the lines."""
        parsed = super().decode(piece)
        if not parsed.bad:
            return parsed
        return replace(parsed, bad=tuple(_in_file(bad, piece) for bad in parsed.bad))

    def records(self, piece: Piece) -> Mapping[int, RecordBytes]:
        """Return the records by their index."""
        return {
            index: (offset - _inserted(piece, index), as_written(line.rstrip(_BLANKS)), header)
            for index, (offset, line, header) in super().records(piece).items()
        }

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Return two pieces of half the records each."""
        found = super().halves(piece)
        if found is None:
            return None
        half, rest = found
        inserted = _inserted(piece, half.data.count(b"\n"))
        return half, replace(rest, offset=rest.offset - inserted)


def _inserted(piece: Piece, lines: int) -> int:
    """Return how many of the line ends are not in the file."""
    return lines if isinstance(piece.context, Unspaced) else 0


def _in_file(bad: BadRecord, piece: Piece) -> BadRecord:
    head = as_written(bad.head.rstrip(_BLANKS))
    offset = bad.offset - _inserted(piece, bad.index)
    return structs.replace(bad, offset=offset, length=len(head), head=head)


def _portions(
    items: Iterable[Piece | RefusedRecord], shape: RowShape
) -> Iterator[Piece | RefusedRecord]:
    """Yield the pieces as `portions` cuts them, each with its context and its place in the file."""
    for item in items:
        if isinstance(item, RefusedRecord):
            yield item
            continue
        lines = 0
        for part in portions([item], shape):
            offset = part.offset - _inserted(item, lines)
            if isinstance(part, RefusedRecord):
                is_whole = part.length <= RAW_BYTES
                head = as_written(part.head.rstrip(_BLANKS) if is_whole else part.head)
                length = len(head) if is_whole else part.length
                yield replace(part, offset=offset, length=length, head=head)
                lines += 1
                continue
            yield replace(part, offset=offset, context=item.context)
            if item.context is not None:
                lines += part.data.count(b"\n")


def _transcoded(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the text as UTF-8. Offsets are of that."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in blocks:
            yield decoder.decode(block).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        reason = f"the file is not {encoding}; set the encoding of the format"
        raise FileFailed("parse", reason) from error
