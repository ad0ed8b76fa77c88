"""Names that a column and a struct's fields may have in a table. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

from blizzard_core.limits import NAME_BYTES, STRUCT_FIELDS

# What Delta tables cannot have in a column's name without column mapping.
_ODD_NAME = re.compile(r'[ ,;{}()\n\t="\\]')


def is_odd(name: str) -> bool:
    """Return whether a name is invalid, such as one with line ends, marks or lone surrogates."""
    if not name or _ODD_NAME.search(name) is not None or not name.isprintable():
        return True
    return len(name.encode()) > NAME_BYTES


def can_be_struct(names: Collection[str]) -> bool:
    """Return whether fields of these names can be a struct; else they are ``json``."""
    if any(map(is_odd, names)) or len({name.lower() for name in names}) < len(names):
        return False
    return 0 < len(names) <= STRUCT_FIELDS
