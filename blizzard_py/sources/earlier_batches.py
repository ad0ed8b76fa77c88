"""Replacement of a file's earlier rows: their place, and the files that must come along. Pure.

A file's earlier rows are found in one of two ways.

* **By name**, if every batch of the file wrote `SOURCE_FILE_COLUMN` and published rows as they were
  read. Then exactly the rows that name the file are removed, and no other file matters.
* **By outputs** otherwise. An output mixes the files of its batch, so it is removed as a whole. All
  files of the batch must then come again in the same commit: *together*. This extends to every
  other batch of these files.

A batch that replaced a file's rows names the batches that had brought them (`Replaced`). For that
file these no longer count, in whatever order journals are read. A replay ingests single records of
a file from files of its own. Their rows belong to the original file, which is identified by its
`stem`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from blizzard_py.state.record_names import stem_of, stem_prefix


@dataclass(frozen=True, slots=True)
class EarlierBatch:
    """A batch of a source that ingested one of the files that are asked about.

    ``files`` maps the stem of each ingested file to the names that its rows may have in
    `SOURCE_FILE_COLUMN`. ``rows`` maps it to their number. ``named`` means that the rows have these
    names. ``outputs`` are output ids, and ``paths`` all paths that these may be found under. What
    it ``replaces`` are batches; None if it is one that adds. Of stems ``of_records`` it has single
    records alone, so it does not tell of the rest of their rows. Stems that are digests are of
    ``long`` paths.
    """

    batch: str
    files: Mapping[str, tuple[str, ...]]
    rows: Mapping[str, int]
    named: bool
    outputs: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    started_ts: float
    replaces: frozenset[str] | None = None
    of_records: frozenset[str] = frozenset()
    long: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A file as it was ingested before, with its number of rows; without ``batches``, never.

    ``names`` are what its rows may have in `SOURCE_FILE_COLUMN`. ``together`` is empty if they
    are found by them, else the same for all whose rows are in the same outputs.
    """

    batches: tuple[EarlierBatch, ...] = ()
    rows: int = 0
    names: tuple[str, ...] = ()
    together: str = ""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Files that are not among the chosen, with one of those because of which they have to be."""

    files: Mapping[str, str]


def current(found: Iterable[EarlierBatch]) -> dict[str, tuple[EarlierBatch, ...]]:
    """Return, by the stem of each file, the batches that still hold its rows."""
    by_stem: dict[str, dict[str, EarlierBatch]] = defaultdict(dict)
    replaced_paths: dict[str, set[str]] = defaultdict(set)
    for batch in found:
        for stem in batch.files:
            by_stem[stem][batch.batch] = batch
            replaced_paths[stem] |= batch.replaces or frozenset()
    return {
        stem: tuple(
            batch for name, batch in sorted(batches.items()) if name not in replaced_paths[stem]
        )
        for stem, batches in by_stem.items()
    }


def earlier_of(
    paths: Sequence[str], found: Collection[EarlierBatch], vouched: Collection[str] = ()
) -> tuple[dict[str, Earlier], Lacking]:
    """Return what each of the paths was ingested as, and who would have to come along.

    Of ``vouched`` an operator says that all rows name them.
    """
    held = current(found)
    stems = {stem_of(path): path for path in paths}
    leaders, lacking = _together(stems, held, frozenset(vouched))
    earlier = {}
    for path in paths:
        stem = stem_of(path)
        batches = held.get(stem, ())
        names = dict.fromkeys(name for batch in batches for name in batch.files[stem])
        rows = sum(batch.rows[stem] for batch in batches)
        together = _leader(leaders, stem) if stem in leaders else ""
        earlier[path] = Earlier(batches, rows, tuple(names), together)
    return earlier, lacking


def _together(
    stems: Mapping[str, str],
    held: Mapping[str, tuple[EarlierBatch, ...]],
    vouched: Collection[str],
) -> tuple[dict[str, str], Lacking]:
    """Return which of the files go by outputs, joined where these are the same."""
    ids = {stem: {batch.batch for batch in batches} for stem, batches in held.items()}
    leaders = {
        stem: stem
        for stem, path in stems.items()
        if path not in vouched and any(_is_mixed(batch) for batch in held.get(stem, ()))
    }
    lacking: dict[str, str] = {}
    remaining = sorted(leaders)
    while remaining:
        stem = remaining.pop()
        for batch in held[stem]:
            for other in batch.files:
                if not batch.rows[other] or batch.batch not in ids[other]:
                    continue  # these outputs have none of its rows, or no longer
                if other not in stems:
                    lacking.setdefault(batch.long.get(other, stem_prefix(other)), stems[stem])
                    continue
                if other not in leaders:
                    leaders[other] = other
                    remaining.append(other)
                first, second = sorted((_leader(leaders, stem), _leader(leaders, other)))
                leaders[second] = first
    return leaders, Lacking(lacking)


def _is_mixed(batch: EarlierBatch) -> bool:
    return bool(batch.outputs) and not batch.named


def _leader(leaders: dict[str, str], stem: str) -> str:
    while leaders[stem] != stem:
        leaders[stem] = leaders[leaders[stem]]
        stem = leaders[stem]
    return stem
