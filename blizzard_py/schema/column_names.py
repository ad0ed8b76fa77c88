"""Names that a column and a struct's fields may have in a table. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from blizzard_core.limits import NAME_BYTES, STRUCT_FIELDS

# What Delta tables cannot have in a column's name without column mapping.
_ODD_NAME = re.compile(r'[ ,;{}()\n\t="\\]')


def is_odd(name: str) -> bool:
    """Return whether a name is invalid, such as one with line ends, marks or lone surrogates."""
    if not name or _ODD_NAME.search(name) is not None or not name.isprintable():
        return True
    return len(name.encode()) > NAME_BYTES


def column_name(name: str) -> str:
    """Return the name of the column for a name in a header.

    Characters that no column can have become one ``_``, and none at the ends: ``Net (EUR)`` is
    ``Net_EUR``. A name of a column stays as it is, and so does one of nothing but those.
    """
    if not is_odd(name):
        return name
    plain = "".join(c if c.isprintable() else " " for c in name)
    return "_".join(_ODD_NAME.sub(" ", plain).split()) or name


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


def can_be_struct(names: Collection[str]) -> bool:
    """Return whether fields of these names can be a struct; else they are ``json``."""
    if any(map(is_odd, names)) or len({name.lower() for name in names}) < len(names):
        return False
    return 0 < len(names) <= STRUCT_FIELDS
