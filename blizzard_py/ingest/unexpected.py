"""Fields of rows that no column takes: each is told once, whatever comes after. Pure.

Which were told stands in the checkpoint, saved with the batch that had them first; a batch that
dies before tells them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from blizzard_core.bounds import UNEXPECTED_FIELDS
from blizzard_py.job import FieldSpec


def told_now(
    before: Sequence[str], names: Iterable[str], fields: Sequence[FieldSpec]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names told so far, with those of a batch, and which of them are new.

    Those that have a column by now are not among them, so one that loses it is told again.
    """
    columns = set(_paths(fields, ""))
    known = tuple(name for name in before if name not in columns)
    fresh = [name for name in dict.fromkeys(names) if name not in known and name not in columns]
    fresh = fresh[: max(0, UNEXPECTED_FIELDS - len(known))]
    return (*known, *fresh), tuple(fresh)


def _paths(fields: Sequence[FieldSpec], outer: str) -> Iterator[str]:
    for spec in fields:
        yield f"{outer}{spec.name}"
        if spec.type == "struct":
            yield from _paths(spec.children, f"{outer}{spec.name}.")
