"""What a line of a schema weighs before it is parsed: its `RowShape`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_py.job import FieldSpec
from blizzard_py.lines.portions import RowShape
from blizzard_py.schema.types import is_extracted

# What a line costs besides its values, in values; a bad one has a letter.
_LINE = 16
# A value that comes out of the line as text is an object of its own until it is converted.
_EXTRACTED = 8


def row_shape(fields: Sequence[FieldSpec]) -> RowShape:
    """That of the lines of a table with these columns."""
    columns = sum(map(_values, fields))
    return RowShape(max(_LINE, columns), max(map(_inner, fields), default=0))


def _values(spec: FieldSpec) -> int:
    """What a value weighs though it is empty; of a list or map that are its offsets."""
    inside = sum(map(_values, spec.children)) if spec.type == "struct" else 1
    return max(inside, _EXTRACTED) if is_extracted(spec) else inside


def _inner(spec: FieldSpec) -> int:
    """The most that an object weighs of which a list or a map can have any number."""
    inside = max(map(_inner, spec.children), default=0)
    if spec.type not in {"list", "map"}:
        return inside
    item = spec.children[0]
    return max(inside, sum(map(_values, item.children)) if item.type == "struct" else 0)
