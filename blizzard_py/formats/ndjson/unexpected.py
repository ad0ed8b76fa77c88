"""Fields of records without a column: their names, at almost no cost.

The fast path records all names when it looks them up. In a chunk that it does not read, some lines
are sampled. So a field of most records is seen at once and a rare one sooner or later. If columns
are made from such fields, every line is checked, at its cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from blizzard_core.limits import NAME_BYTES
from blizzard_py.formats.ndjson.extract import (
    OBJECT,
    SchemaNames,
    decode_lines,
    left_over,
    paths,
    strict_line,
)
from blizzard_py.job import FieldSpec
from blizzard_py.schema.types import is_extracted

# The number of lines that are sampled in a chunk which the fast path has not read.
SAMPLE = 16
# The most names reported for one chunk; the others wait for another chunk.
MOST = 64


class FieldWatch:
    """Checks lines that the exact path has read, for one schema; ``thorough``: all lines."""

    def __init__(self, fields: Sequence[FieldSpec], *, thorough: bool) -> None:
        self._known = SchemaNames.of(fields)
        self._thorough = thorough
        # Detects quickly that there is nothing, unless it would have to parse values
        # that are extracted as a whole.
        whole = any(spec.type == "struct" and is_extracted(spec) for spec in fields)
        asks = thorough and not whole
        self._strict: msgspec.json.Decoder[Any] | None = None
        if asks:
            # It does not support names with a quote or a backslash: then lines are checked.
            with contextlib.suppress(ValueError):
                self._strict = msgspec.json.Decoder(strict_line(fields, {}))

    def names(self, chunk: bytes, bad: Collection[bytes]) -> frozenset[str]:
        """Return fields of the chunk's records without a column; ``bad`` are lines to skip."""
        if not self._thorough:
            return names_in((line for line in _spread(chunk) if line not in bad), self._known)
        if self._strict is not None and not bad:
            try:
                decode_lines(self._strict, chunk)
            except ValueError:
                pass  # there is something, or a line must be checked alone
            else:
                return frozenset()
        return names_in((line for line in chunk.split(b"\n") if line not in bad), self._known)


def names_in(lines: Iterable[bytes], known: SchemaNames) -> frozenset[str]:
    """Return names in the lines' records that are not ``known``, at most `MOST`."""
    found: set[str] = set()
    for line in lines:
        try:
            document = OBJECT.decode(line)
            found.update(map(shown_name, paths(left_over(document, known))))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            continue  # a blank line, or one that only the reader accepts, such as `NaN`
        if len(found) >= MOST:
            break
    return first(found)


def first(names: Iterable[str]) -> frozenset[str]:
    """Return the first `MOST` of the sorted names."""
    return frozenset(sorted(names)[:MOST])


def shown_name(name: str | bytes) -> str:
    """Return a name for a report; a name too long for any column is cut."""
    raw = name if isinstance(name, bytes) else name.encode("utf-8", "replace")
    if len(raw) <= NAME_BYTES:
        return raw.decode("utf-8", "replace")
    return f"{raw[:NAME_BYTES].decode('utf-8', 'ignore')}…"


def _spread(chunk: bytes) -> Iterator[bytes]:
    """Yield some of the chunk's lines, from all over it; all if they are few."""
    if chunk.count(b"\n") <= SAMPLE:
        yield from chunk.split(b"\n")
        return
    end = 0
    for part in range(SAMPLE):
        start = max(end, chunk.rfind(b"\n", 0, len(chunk) * part // SAMPLE) + 1)
        end = chunk.find(b"\n", start) + 1
        if not end:
            return
        yield chunk[start : end - 1]
