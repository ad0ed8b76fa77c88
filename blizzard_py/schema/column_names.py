"""Names that a column and a struct's fields may have in a table. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from blizzard_core.limits import NAME_BYTES, STRUCT_FIELDS
from blizzard_core.settings.schema import column_name

# What Delta tables cannot have in a column's name without column mapping.
_ODD_NAME = re.compile(r'[ ,;{}()\n\t="\\]')

# What readers of JSON cannot search for.
_UNREADABLE = re.compile(r'["\\]')


def is_odd(name: str) -> bool:
    """Return whether a name is invalid, such as one with line ends, marks or lone surrogates."""
    if not name or _ODD_NAME.search(name) is not None or not name.isprintable():
        return True
    return len(name.encode()) > NAME_BYTES


def column_names(names: Sequence[str], declared: Collection[str]) -> tuple[str, ...]:
    """Return the names in a header as columns have them.

    A declared name stays as it is, and so does one whose column another name has.
    """
    found = [name if name in declared else column_name(name) for name in names]
    counts = Counter(name.lower() for name in found)
    return tuple(
        name if counts[other.lower()] > 1 else other
        for name, other in zip(names, found, strict=True)
    )


def unique_columns(names: Collection[str]) -> dict[str, str]:
    """Return the name of a column for each name in records, no two the same.

    A name that a column can have stays, unless one before it differs only in case. Names that a
    configuration cannot hold, or that are too long, are missing.
    """
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in sorted(names, key=is_odd):  # otherwise in their order
        plain = column_name(name) if is_odd(name) else name
        column, number = plain, 2
        while column.lower() in used:
            column, number = f"{plain}_{number}", number + 1
        if not is_odd(column) and name.isprintable() and not _UNREADABLE.search(name):
            found[name] = column
            used.add(column.lower())
    return found


def can_be_struct(names: Collection[str]) -> bool:
    """Return whether fields of these names can be a struct; else they are ``json``."""
    if any(map(is_odd, names)) or len({name.lower() for name in names}) < len(names):
        return False
    return 0 < len(names) <= STRUCT_FIELDS
