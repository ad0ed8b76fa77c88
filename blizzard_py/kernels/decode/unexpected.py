"""Fields of records that no column takes: their names, for next to nothing.

The fast path takes names down where it looks them up, all of them. Of a chunk that it does not
read some lines are looked at, so a field that most records have is seen at once and a rare one
sooner or later. Where columns are made of such fields every line counts and is paid for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from blizzard_core.bounds import NAME_BYTES
from blizzard_py.job import FieldSpec
from blizzard_py.kernels.decode.extract import (
    OBJECT,
    SchemaNames,
    decode_lines,
    left_over,
    paths,
    strict_line,
)
from blizzard_py.schema.types import is_extracted

# Of a chunk that the fast path has not read so many lines are looked at.
SAMPLE = 16
# So many names of one chunk are told; the others wait for another.
MOST = 64


class FieldWatch:
    """Looks at lines that the exact path has read, by one schema; ``thorough``: at all of them."""

    def __init__(self, fields: Sequence[FieldSpec], *, thorough: bool) -> None:
        self._known = SchemaNames.of(fields)
        self._thorough = thorough
        # Tells at once that there is nothing, unless it would have to look into values
        # that are taken whole.
        whole = any(spec.type == "struct" and is_extracted(spec) for spec in fields)
        asks = thorough and not whole
        self._strict: msgspec.json.Decoder[Any] | None = None
        if asks:
            # It has no spelling for a name with a quote or a backslash: lines are looked at then.
            with contextlib.suppress(ValueError):
                self._strict = msgspec.json.Decoder(strict_line(fields, {}))

    def names(self, chunk: bytes, bad: Collection[bytes]) -> frozenset[str]:
        """Fields of the chunk's records without a column; ``bad`` are lines that are none."""
        if not self._thorough:
            return names_in((line for line in _spread(chunk) if line not in bad), self._known)
        if self._strict is not None and not bad:
            try:
                decode_lines(self._strict, chunk)
            except ValueError:
                pass  # there is something, or a line has to be looked at by itself
            else:
                return frozenset()
        return names_in((line for line in chunk.split(b"\n") if line not in bad), self._known)


def names_in(lines: Iterable[bytes], known: SchemaNames) -> frozenset[str]:
    """The names of the lines' records that are not ``known``, `MOST` at most."""
    found: set[str] = set()
    for line in lines:
        try:
            document = OBJECT.decode(line)
            found.update(map(shown_name, paths(left_over(document, known))))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            continue  # a blank line, or what only the reader takes, such as `NaN`
        if len(found) >= MOST:
            break
    return first(found)


def first(names: Iterable[str]) -> frozenset[str]:
    """`MOST` of the names, those that come first."""
    return frozenset(sorted(names)[:MOST])


def shown_name(name: str | bytes) -> str:
    """A name as it is told: one that no column can have for its length is cut."""
    raw = name if isinstance(name, bytes) else name.encode("utf-8", "replace")
    if len(raw) <= NAME_BYTES:
        return raw.decode("utf-8", "replace")
    return f"{raw[:NAME_BYTES].decode('utf-8', 'ignore')}…"


def _spread(chunk: bytes) -> Iterator[bytes]:
    """Some of the chunk's lines, from all over it; all if they are few."""
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
