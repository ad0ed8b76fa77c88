"""Fields of rows without a column: each is reported once. Pure.

The checkpoint holds the reported ones, saved with the batch that had them first; if a batch dies
before, they are reported again. Each of several sources that share batches has its own: a column of
one may be missing in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from blizzard_core.limits import UNEXPECTED_FIELDS
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.state.composite_state import split_path
from blizzard_py.state.source_state import SourceState

# Names that are told now, and a file that has the first of them.
NewFields: TypeAlias = tuple[tuple[str, ...], str]


def with_reported_fields(
    state: SourceState,
    found: Sequence[UnexpectedField],
    fields: Sequence[FieldSpec],
    members: Mapping[str, Sequence[FieldSpec]],
) -> tuple[SourceState, list[NewFields]]:
    """Return the state with the newly reported names, and these by source.

    ``fields`` have columns; of several sources ``members`` says which, by their names.
    """
    if not members:
        known, reported = _new_fields(state.summary.unexpected, found, fields)
        return state.with_summary(unexpected=known), reported
    after, all_reported = dict(state.members), []
    for name, own in members.items():
        its = [each for each in found if split_path(each.path)[0] == name]
        known, reported = _new_fields(after[name].summary.unexpected, its, own)
        after[name] = after[name].with_summary(unexpected=known)
        all_reported += reported
    return replace(state, members=after), all_reported


def _new_fields(
    before: Sequence[str], found: Sequence[UnexpectedField], fields: Sequence[FieldSpec]
) -> tuple[tuple[str, ...], list[NewFields]]:
    known, fresh = new_field_names(before, [each.name for each in found], fields)
    return known, [(fresh, next(e.path for e in found if e.name == fresh[0]))] if fresh else []


def new_field_names(
    before: Sequence[str], names: Iterable[str], fields: Sequence[FieldSpec]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return all reported names with those of a batch, and the new ones.

    Names that have a column by now are left out, so a field that loses its column is reported
    again.
    """
    columns = set(_paths(fields, ""))
    known = tuple(name for name in before if name not in columns)
    fresh = [name for name in dict.fromkeys(names) if name not in known and name not in columns]
    fresh = fresh[: max(0, UNEXPECTED_FIELDS - len(known))]
    return (*known, *fresh), tuple(fresh)


def _paths(fields: Sequence[FieldSpec], outer: str) -> Iterator[str]:
    for spec in fields:
        yield f"{outer}{spec.input_name}"
        if spec.type == "struct":
            yield from _paths(spec.children, f"{outer}{spec.input_name}.")
