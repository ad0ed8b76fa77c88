"""The format CSV: its options, its encodings, and the two halves together."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blizzard_core.settings.formats import CsvOptions
from blizzard_py.dead_letters.reader import DeadLetter
from blizzard_py.formats.csv.decode import CsvDecoder
from blizzard_py.formats.csv.dialect import Dialect
from blizzard_py.formats.csv.framing import CsvFraming
from blizzard_py.formats.csv.lexer import Lexer
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.job import RowSchema
from blizzard_py.lines.framing import Piece, RefusedRecord
from blizzard_py.lines.transcode import check_narrow, to_utf8


@dataclass(frozen=True)
class CsvFormat:
    """CSV as a `Format`."""

    options: CsvOptions

    def pieces(self, file: OpenFile, schema: RowSchema) -> Iterator[Piece | RefusedRecord]:
        """Yield pieces of whole records; offsets are of the text in UTF-8."""
        options = self.options
        framing = CsvFraming(
            self._dialect(file.path),
            len(schema.fields),
            header=options.header,
            skip_rows=options.skip_rows,
        )
        yield from framing.pieces(_as_utf8(file.blocks(), options.encoding))

    def decoder(self, schema: RowSchema, *, tolerant: bool, fast: bool) -> CsvDecoder:  # noqa: ARG002  # one path
        """Return the decoder of these columns."""
        return CsvDecoder(self.options, schema, tolerant=tolerant)

    def replay_contents(self, letters: Sequence[DeadLetter]) -> list[bytes]:
        """Return the records behind their header, as they stand in the file.

        A record that its line end does not end has a file of its own, and no byte behind it: what
        follows an open quote or an escape would be part of it. The mark before them keeps theirs,
        and nothing in them is taken for that of another encoding or codec.
        """
        dialect = self._dialect(letters[0].uri)
        header = letters[0].header
        start = codecs.BOM_UTF8 + (header and header + b"\n")
        whole: list[bytes] = []
        others: list[bytes] = []
        for letter in letters:
            (whole if _is_one_record(letter.raw, dialect) else others).append(letter.raw)
        together = b"".join(raw + b"\n" for raw in whole)
        return [start + content for content in (together, *others) if content]

    def replay_settings(self) -> CsvOptions:
        """Return CSV in UTF-8 without lines before the header."""
        return self.options.model_copy(update={"skip_rows": 0, "encoding": "utf-8"})

    def _dialect(self, path: str) -> Dialect:
        options = self.options
        return Dialect(
            options.delimiter_of(path).encode(),
            options.quote.encode(),
            options.escape.encode(),
            options.comment.encode(),
        )


def _is_one_record(record: bytes, dialect: Dialect) -> bool:
    """Return whether a record ends with its bytes, and not before."""
    size = len(record) + 1
    return Lexer(dialect).feed(record + b"\n") == (size, size)


def _as_utf8(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield a stream in UTF-8, before anything is framed: other encodings use bytes of ASCII."""
    if encoding == "utf-8":
        yield from check_narrow(blocks, "set format.encoding: utf-16")
    else:
        yield from to_utf8(blocks, encoding)
