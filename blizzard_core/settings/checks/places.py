"""Places and names that two parts of one configuration would share.

Found in the raw data, before types are checked, so that one typo hides nothing:

* two sources on one directory, or one inside the other: rows twice. Sources of different tables
  may share one if their patterns prove that they share no name. State and ledger are a table's, so
  two of one table would need to know what the other has read under earlier patterns;
* two tables on one directory, or one inside the other: Penguin commits every
  Parquet file below a table's root;
* a table or dead letters inside a source, or a source inside them: dead letters are NDJSON
  and would be read as data, again and again. Hidden folders (``_dlq``) are refused as well:
  discovery skips them, but every listing pays for them, and other readers do not skip them;
* a keyed table on or in any other table: a merge removes rows of it;
* the archive of cleaned files in a source, a table or another archive, or one of them in it;
* dead letters in a table, except in a folder that Delta's VACUUM does not touch;
* two sources with one state name, if they share a table or a dead-letter queue.

Local paths are compared with their symbolic links resolved.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_core.settings.globs import NameStarts, starts_of
from blizzard_core.settings.yaml_file import Document, Key
from blizzard_core.storage.opening import (
    azure_account,
    azure_root,
    normalize_uri,
    option,
    problems_of,
    scheme_of,
)
from blizzard_core.storage.protocol import StorageOptions

_AZURE = frozenset({"az", "abfs", "abfss"})
# Hidden folders of a table that may not hold dead letters; `_DLQ` is the exception.
_USED = ("_delta", "_change_data", "_penguin", "_blizzard")
_DLQ = "_blizzard/dlq/"


@dataclass(frozen=True, slots=True)
class Area:
    """A URI and everything below it: ``root`` ends with ``/``.

    ``account`` is the Azure account, None if unknown. A container of another account is another
    place. Endpoints do not count: one store may have several names.
    """

    root: str
    account: str | None = None

    def overlaps(self, other: Area) -> bool:
        """Return whether one area is in the other, or may be."""
        return self.holds(other) or other.holds(self)

    def holds(self, other: Area) -> bool:
        """Return whether the other area is this one or in it, or may be."""
        same = None in {self.account, other.account} or self.account == other.account
        return same and other.root.startswith(self.root)


def area_of(uri: str, options: StorageOptions) -> Area:
    """Return the area of a URI that `problems_of` accepts."""
    place = normalize_uri(uri)
    scheme = scheme_of(uri)
    if scheme in {"", "file"}:
        return Area(os.path.realpath(place).rstrip("/") + "/")
    if scheme not in _AZURE:
        return Area(f"{place}/")
    account = azure_account(uri) or option(options, "AZURE_STORAGE_ACCOUNT_NAME")
    return Area(f"az://{azure_root(place.partition('://')[2])}/", account)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a source reads, and its table."""

    starts: NameStarts
    table: Area


@dataclass(frozen=True, slots=True)
class _Place:
    """A URI of the configuration, normalised, and the key that has it, with its line.

    ``names`` are those of a source without a fault.
    """

    where: str
    uri: str
    area: Area
    names: _Names | None = None

    def is_disjoint_from(self, other: _Place) -> bool:
        """Return whether two sources share neither a name nor a table."""
        mine, theirs = self.names, other.names
        if mine is None or theirs is None or mine.table.overlaps(theirs.table):
            return False
        return mine.starts.is_disjoint_from(theirs.starts)


@dataclass(frozen=True, slots=True)
class _State:
    """The name under which a source's state is kept, and what it is kept beside."""

    where: str
    name: str
    pipeline: str
    table: _Place | None
    letters: _Place | None

    def meets(self, other: _State) -> bool:
        """Return whether files of the two would have the same paths."""
        shares_table = self.pipeline == other.pipeline or _same(self.table, other.table)
        return self.name == other.name and (shares_table or _same(self.letters, other.letters))


def _same(one: _Place | None, other: _Place | None) -> bool:
    if one is None or other is None:
        return False
    return one.area.holds(other.area) and other.area.holds(one.area)


class _Map:
    """Places by root. It finds overlapping places without a comparison of all pairs."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self._at: defaultdict[str, list[tuple[int, _Place]]] = defaultdict(list)
        for number, place in enumerate(places):
            self._at[place.area.root].append((number, place))
        self._roots = sorted(self._at)

    def overlapping(self, area: Area) -> list[tuple[int, _Place]]:
        """Return the overlapping places with their numbers, in the order given."""
        ends = (end for end, character in enumerate(area.root, 1) if character == "/")
        roots = {area.root[:end] for end in ends}
        first = bisect_left(self._roots, area.root)
        while first < len(self._roots) and self._roots[first].startswith(area.root):
            roots.add(self._roots[first])
            first += 1
        near = [each for root in roots & self._at.keys() for each in self._at[root]]
        return sorted(
            (each for each in near if each[1].area.overlaps(area)), key=lambda each: each[0]
        )


def conflicts(document: Document) -> list[str]:
    """Return every bad URI and every conflict, each with its key and a remedy."""
    found = _Found(document)
    data = _mapping(document.data)
    for name, pipeline in _mapping(data.get("pipelines")).items():
        found.pipeline(str(name), _mapping(pipeline))
    for name, table in _mapping(data.get("tables")).items():
        found.add(("tables", str(name)), _mapping(table), "table_uri", found.tables)
    return [
        *found.problems,
        *_overlaps(found),
        *_unsafe_letters(found),
        *_one_state(found.states),
    ]


@dataclass
class _Found:
    """The places that a document names, and the problems of single URIs."""

    document: Document
    problems: list[str] = field(default_factory=list)
    sources: list[_Place] = field(default_factory=list)
    sinks: list[_Place] = field(default_factory=list)
    tables: list[_Place] = field(default_factory=list)
    keyed: list[_Place] = field(default_factory=list)
    letters: list[_Place] = field(default_factory=list)
    archives: list[_Place] = field(default_factory=list)
    states: list[_State] = field(default_factory=list)

    def pipeline(self, name: str, block: dict[Any, Any]) -> None:
        here: Key = ("pipelines", name)
        sink = _mapping(block.get("sink"))
        table = self.add((*here, "sink"), sink, "table_uri", self.sinks)
        keyed = _mapping(block.get("keyed"))
        self.add((*here, "keyed"), keyed, "table_uri", self.keyed, _keyed_options(keyed, sink))
        errors = _mapping(_mapping(block.get("error_handling")).get("advanced"))
        place_of_errors: Key = (*here, "error_handling", "advanced")
        options = _dlq_options(errors, sink)
        letters = self.add(place_of_errors, errors, "dlq_path", self.letters, options)
        for source, raw in _mapping(block.get("sources")).items():
            settings = _mapping(raw)
            path: Key = (*here, "sources", str(source))
            key = "path" if "path" in settings else "source_uri"
            place = self.add(path, settings, key, self.sources)
            if place is not None and table is not None:
                self.sources[-1] = replace(place, names=_names_of(place, settings, table))
            archive: Key = (*path, "clean")
            clean = _mapping(settings.get("clean"))
            self.add(archive, clean, "archive_uri", self.archives, _options(settings))
            given = settings.get("id")
            where = self.document.locate(path if given is None else (*path, "id"))
            state_id = f"{name}_{source}" if given is None else str(given)
            self.states.append(_State(where, state_id, name, table, letters))

    def add(
        self,
        path: Key,
        block: dict[Any, Any],
        key: str,
        into: list[_Place],
        borrowed: StorageOptions | None = None,
    ) -> _Place | None:
        """Note the place at ``key``, or what is wrong with it.

        ``borrowed`` are options that another block has; they may be of another store.
        """
        uri, where = block.get(key), self.document.locate((*path, key))
        if not isinstance(uri, str):
            return None
        if not uri and any(
            reported.startswith(f"{where}: ") for reported in self.document.problems
        ):
            return None  # a variable that is not set is reported already
        own = _options(block)
        wrong = problems_of(uri, own)
        self.problems.extend(f"{where}: {problem}" for problem in wrong)
        if wrong:
            return None
        place = _Place(
            where, normalize_uri(uri), area_of(uri, own if borrowed is None else borrowed)
        )
        into.append(place)
        return place


def _names_of(source: _Place, settings: dict[Any, Any], table: _Place) -> _Names | None:
    include, exclude = settings.get("include") or [], settings.get("exclude") or []
    try:
        return _Names(starts_of(source.area.root, include, exclude), table.area)
    except (ValueError, TypeError):
        return None  # reported with the types


def _keyed_options(keyed: dict[Any, Any], sink: dict[Any, Any]) -> StorageOptions:
    return _options(_mapping(keyed.get("advanced"))) or _options(sink)


def _dlq_options(errors: dict[Any, Any], sink: dict[Any, Any]) -> StorageOptions:
    own = errors.get("dlq_storage_options")
    return _options(sink) if own is None else _options({"storage_options": own})


def _overlaps(found: _Found) -> Iterator[str]:
    sources, sinks, tables = found.sources, found.sinks, found.tables
    yield from _shared(
        sources,
        "is read by {other} as well; sources of two tables may share a folder if the beginnings of"
        " their include have no name in common",
    )
    yield from _shared(sinks, "is written by {other} as well")
    yield from _shared(tables, "is the table of {other} as well")
    near_sinks, near_sources = _Map(sinks), _Map(sources)
    for table in tables:
        for _, sink in near_sinks.overlapping(table.area):
            if table.uri != sink.uri:
                yield (
                    f"{table.where}: overlaps with the table of {sink.where}; write the same URI"
                    " for the same table, and a separate place for others"
                )
    yield from _shared(found.keyed, "is the keyed table of {other} as well")
    near_others = _Map([*sinks, *tables])
    for keyed in found.keyed:
        for _, table in near_others.overlapping(keyed.area):
            yield (
                f"{keyed.where}: overlaps with the table of {table.where}; a keyed table needs a"
                " place of its own"
            )
    near_tables = _Map([*sinks, *tables, *found.keyed])
    for source in sources:
        for _, table in near_tables.overlapping(source.area):
            yield f"{source.where}: overlaps with the table of {table.where}; use separate places"
    yield from _of_archives(found.archives, (near_sources, near_tables, _Map(found.letters)))
    for letters in found.letters:
        for _, source in near_sources.overlapping(letters.area):
            yield (
                f"{letters.where}: overlaps with {source.where}, where letters would be read"
                " as data; choose a separate place, or leave it out"
            )


def _of_archives(archives: list[_Place], others: Sequence[_Map]) -> Iterator[str]:
    yield from _shared(archives, "is the archive of {other} as well; give each its own")
    for archive in archives:
        for near in others:
            for _, other in near.overlapping(archive.area):
                yield f"{archive.where}: overlaps with {other.where}; choose a separate place"


def _shared(places: list[_Place], text: str) -> Iterator[str]:
    """Yield each place that an earlier one overlaps, with the first of these."""
    near = _Map(places)
    for number, place in enumerate(places):
        earlier, other = next(
            (n, other)
            for n, other in near.overlapping(place.area)
            if n == number or not place.is_disjoint_from(other)
        )
        if earlier < number and other.where == place.where:
            yield f"{place.where}: is one place for several blocks; give each its own"
        elif earlier < number:
            yield f"{place.where}: {text.format(other=other.where)}"


def _unsafe_letters(found: _Found) -> Iterator[str]:
    """Yield letters that a VACUUM would delete: all but those in hidden folders at a root."""
    near = _Map([*found.sinks, *found.tables, *found.keyed])
    for letters in found.letters:
        for _, table in near.overlapping(letters.area):
            if not table.area.holds(letters.area):
                continue
            inside = letters.area.root.removeprefix(table.area.root)
            hidden = inside.startswith(("_", ".")) and not inside.startswith(_USED)
            if not hidden and not inside.startswith(_DLQ):
                yield (
                    f"{letters.where}: is in the table of {table.where}, where a VACUUM deletes"
                    " it. Leave it out (then letters are in _blizzard/dlq of the table), or choose"
                    " a place outside of the table"
                )
                break


def _one_state(states: list[_State]) -> Iterator[str]:
    named: defaultdict[str, list[_State]] = defaultdict(list)
    for state in states:
        for other in named[state.name]:
            if state.meets(other):
                yield (
                    f"{state.where}: its state is named {state.name!r}, and so is that of"
                    f" {other.where}; give the newer one an `id` of its own"
                )
        named[state.name].append(state)


def _mapping(data: Any) -> dict[Any, Any]:
    return data if isinstance(data, dict) else {}


def _options(block: Mapping[Any, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in _mapping(block.get("storage_options")).items()}
