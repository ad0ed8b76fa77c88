"""The order guard: do names sort in the order the files were written? Pure.

A watermark skips all names below it, so files are lost if names do not sort by time. `inspect`
looks at a sample of a listing, at most `SAMPLE` entries chosen the same way each time, and names
what it finds:

* ``random_names``: within a directory or partition, files that are neighbours by
  name were written in no order at all, more than the tolerance apart;
* ``unpadded_numbers``: numbers of different length, so that ``hour=10`` sorts
  below ``hour=9``, or ``10.json`` below ``9.json``;
* ``clock_ahead``: a name carries a time that lies ahead of the file's
  modification time: that writer pushes the watermark past everyone else's files.

It accuses only on evidence. Writers that finish out of order by less than the tolerance are normal:
the grace period is for them. A bulk copy gives all files the same few minutes, so their times prove
nothing. A few late files among many are late, not random. Pairs of names with increasing times of
their own (Unix, UUIDv7, ISO 8601) sort in time, even if the files were rewritten.

Feed it complete listings: a cold start, or the late sweep's. A poll sees only
what sorts above the watermark, and of random names those are the ones that
happen to look ordered.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from blizzard_core.checkpoint.digests import np
from blizzard_core.storage.protocol import Entry, is_hidden, order_key
from blizzard_core.watermark.paths import partition_key, split

T = TypeVar("T")
# Disorder that is never worth a word: writers do not finish in order.
TOLERANCE_SECS = 300.0

Kind = Literal["random_names", "unpadded_numbers", "clock_ahead"]

SAMPLE = 1000
_RUNS, _RUN = 5, 100  # stretches of neighbours by name; the rest of the sample is spread evenly

# A verdict on randomness wants this many files, times and pairs. Names are
# compared with their next _WINDOW neighbours only: order that is right from day
# to day and random within the day must not pass. Kendall's tau of random names
# scatters around 0 by about 0.15 at 30 files, so 0.5 lies three deviations off.
_MIN_FILES, _MIN_TIMES, _MIN_PAIRS, _WINDOW = 20, 10, 100, 16
_MIN_SHARE, _MAX_TAU = 0.4, 0.5

# A number that would be a time more than a year ahead is a counter, not a clock.
_NOT_A_CLOCK_SECS = 366 * 86_400.0
_YEARS = range(2001, 2101)
_QUARTER_HOUR, _FARTHEST_ZONE = 900.0, 14 * 3600.0

_PREFIX = r"(?:[A-Za-z]+[-_.=])*"
_END = r"(?![0-9A-Za-z])"
_UNIX = re.compile(rf"{_PREFIX}([0-9]{{19}}|[0-9]{{16}}|[0-9]{{13}}|[0-9]{{10}}){_END}")
_UUID7 = re.compile(
    rf"{_PREFIX}([0-9a-f]{{8}})-?([0-9a-f]{{4}})-?7[0-9a-f]{{3}}-?[89ab][0-9a-f]{{3}}-?[0-9a-f]{{12}}{_END}",
    re.IGNORECASE,
)
_ISO = re.compile(
    rf"{_PREFIX}([0-9]{{4}})-?([0-9]{{2}})-?([0-9]{{2}})[T_ -]?([0-9]{{2}})[:_.-]?([0-9]{{2}})"
    rf"(?:[:_.-]?([0-9]{{2}}))?(?:[.,][0-9]+)?(Z|[+-][0-9]{{2}}:[0-9]{{2}}|\+[0-9]{{4}})?{_END}"
)
_LEADING_NUMBER = re.compile(rf"({_PREFIX})([0-9]+){_END}")
_NUMBER_COMPONENT = re.compile(r"(?:([^=]+)=)?([0-9]+)")
_YEAR_COMPONENT = re.compile(r"(?:^|/)(?:19|2[01])[0-9]{2}(?:/|$)")
_TIME_KEY = re.compile(
    r"y+|year|yr|mo|mon|month|w|wk|week|d+|day|h+|hr|hour|mi|min|minute|s|sec|second", re.IGNORECASE
)

_WRONG: Mapping[Kind, str] = {
    "random_names": "file names do not sort in the order in which the files were written",
    "unpadded_numbers": "numbers of different length do not sort by value",
    "clock_ahead": "names carry a time that lies ahead of the files' modification times",
}
_REMEDY: Mapping[Kind, str] = {
    "random_names": (
        "files that sort below the watermark are not ingested: begin names with a timestamp or a"
        " UUIDv7, or set use_watermark: false"
    ),
    "unpadded_numbers": "pad them with zeros to one width (hour=09), or set use_watermark: false",
    "clock_ahead": (
        "one fast clock makes the watermark pass the other writers' files: synchronise the"
        " writers' clocks (NTP, UTC), or raise grace_period above the skew"
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of disorder: where it is seen last in the order, and in how many places more.

    ``place`` is a directory or partition, ``""`` for the root; ``examples`` are
    paths (or directories, for unpadded ones), at most three.
    """

    kind: Kind
    place: str
    examples: tuple[str, ...]
    others: int = 0

    @property
    def remedy(self) -> str:
        """Return what the operator can do about it."""
        return _REMEDY[self.kind]

    @property
    def message(self) -> str:
        """One line: where, what is wrong, for example which files, and the remedy."""
        place = f"{self.place}/" if self.place else "the source's root"
        others = f" (and {self.others} more)" if self.others else ""
        examples = ", ".join(self.examples)
        return f"{place}{others}: {_WRONG[self.kind]}, for example {examples}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class NameTime:
    """The time at the front of a name, in epoch seconds; ``zoned`` unless it is a bare ISO time."""

    at: float
    zoned: bool


def name_time(name: str) -> NameTime | None:
    """Return the time that a file name starts with, after words such as ``events-``, or None.

    Formats: Unix seconds, milliseconds, microseconds or nanoseconds. A UUIDv7 (RFC 9562: its first
    48 bits are Unix milliseconds). ISO 8601 with at least hours and minutes, separators optional.
    Only times of this century count.
    """
    if unix := _UNIX.match(name):
        digits = unix[1]
        return _plausible(int(digits) / 10 ** (len(digits) - 10), zoned=True)
    if uuid := _UUID7.match(name):
        return _plausible(int(uuid[1] + uuid[2], 16) / 1000, zoned=True)
    if iso := _ISO.match(name):
        year, month, day, hour, minute = (int(iso[i]) for i in range(1, 6))
        try:
            at = dt.datetime(year, month, day, hour, minute, int(iso[6] or 0), tzinfo=dt.UTC)
        except ValueError:
            return None
        return _plausible(at.timestamp() - _zone_secs(iso[7]), zoned=iso[7] is not None)
    return None


def _plausible(at: float, *, zoned: bool) -> NameTime | None:
    first, last = (dt.datetime(y, 1, 1, tzinfo=dt.UTC).timestamp() for y in (_YEARS[0], _YEARS[-1]))
    return NameTime(at, zoned) if first <= at < last else None


def _zone_secs(zone: str | None) -> float:
    if zone is None or zone == "Z":
        return 0.0
    secs = int(zone[1:3]) * 3600.0 + int(zone[-2:]) * 60.0
    return -secs if zone[0] == "-" else secs


@dataclass(frozen=True, slots=True)
class _Seen:
    path: str
    folder: str
    partition: str
    modified: float
    time: NameTime | None


def inspect(
    entries: Sequence[Entry],
    depth: int,
    known_partitions: Collection[str],
    tolerance_secs: float = TOLERANCE_SECS,
) -> tuple[Finding, ...]:
    """Return what breaks the order of these files: at most one finding of each kind.

    ``entries`` are a listing in byte order of their paths. ``depth`` is the number of components of
    a partition. ``known_partitions`` are those that the checkpoint tracks; they are checked for
    unpadded numbers. Disorder up to ``tolerance_secs`` (the grace period) is accepted.
    """
    spread, runs = _sampled(entries)
    seen = [_look(entry, depth) for entry in spread]
    folders = {s.folder for s in seen} | set(evenly(sorted(known_partitions), SAMPLE))
    unpadded = _unpadded_folders(folders, seen, tolerance_secs) | _unpadded_files(seen)
    disordered: dict[str, tuple[str, ...]] = {}
    for place, group in _by_place(_look(entry, depth) for entry in runs).items():
        examples = None if place in unpadded else _random(group, tolerance_secs)
        if examples is not None:
            disordered[place] = examples
    places: dict[Kind, Mapping[str, tuple[str, ...]]] = {
        "random_names": disordered,
        "unpadded_numbers": unpadded,
        "clock_ahead": _ahead(seen, tolerance_secs),
    }
    return tuple(_summary(kind, where) for kind, where in places.items() if where)


def _summary(kind: Kind, places: Mapping[str, tuple[str, ...]]) -> Finding:
    newest = max(places, key=partition_key)
    return Finding(kind, newest, places[newest], len(places) - 1)


def _sampled(entries: Sequence[Entry]) -> tuple[Sequence[Entry], Sequence[Entry]]:
    """Return entries spread over the listing and runs of neighbours; all entries of a short one."""
    if len(entries) <= SAMPLE:
        visible = [entry for entry in entries if not is_hidden(entry.path)]
        return visible, visible
    spread = evenly(entries, SAMPLE - _RUNS * _RUN)
    gap = (len(entries) - _RUN) / (_RUNS - 1)
    runs = [e for i in range(_RUNS) for e in entries[int(i * gap) : int(i * gap) + _RUN]]
    return [e for e in spread if not is_hidden(e.path)], [e for e in runs if not is_hidden(e.path)]


def evenly(items: Sequence[T], count: int) -> Sequence[T]:
    """Return at most ``count`` items: the first, the last and some between, or the last alone.

    Files and names change with time, so neighbours show less than distant ones.
    """
    if len(items) <= count:
        return items
    last = len(items) - 1
    return [items[-1]] if count == 1 else [items[i * last // (count - 1)] for i in range(count)]


def _look(entry: Entry, depth: int) -> _Seen:
    folder, _, name = entry.path.rpartition("/")
    partition, _ = split(entry.path, depth)
    return _Seen(entry.path, folder, partition, entry.modified, name_time(name))


# -- random names ---------------------------------------------------------------


def _by_place(seen: Iterable[_Seen]) -> dict[str, list[_Seen]]:
    """Return the files by directory, and by partition where that differs; in byte order."""
    groups: dict[str, list[_Seen]] = defaultdict(list)
    for one in sorted(set(seen), key=lambda s: order_key(s.path)):
        for place in {one.folder, one.partition}:
            groups[place].append(one)
    return groups


def _random(group: Sequence[_Seen], tolerance: float) -> tuple[str, ...] | None:
    """Return two files in the wrong order if the order is wrong overall; None if in doubt.

    Pairs of neighbours by name that were written more than ``tolerance`` apart
    speak for or against order, unless their names' own times tell them apart.
    """
    times = np.array([one.modified for one in group])
    if len(group) < _MIN_FILES or len(np.unique(times)) < _MIN_TIMES:
        return None
    own = np.array([one.time.at if one.time else np.nan for one in group])
    pairs = 0
    in_order, against = [0, 0], [0, 0]  # [names tell no times, names tell increasing times]
    worst, example = 0.0, (0, 0)
    for step in range(1, min(_WINDOW, len(group) - 1) + 1):
        later = times[step:] - times[:-step]
        is_after = own[step:] > own[:-step]  # False wherever a name carries no time
        pairs += len(later)
        for i, mask in enumerate((~is_after, is_after)):
            in_order[i] += int(np.count_nonzero(mask & (later > tolerance)))
            against[i] += int(np.count_nonzero(mask & (later < -tolerance)))
        at = int(np.argmin(np.where(is_after, 0.0, later)))
        if not is_after[at] and later[at] < worst:
            worst, example = float(later[at]), (at, at + step)
    if _orderly(in_order[0], against[0]) or in_order[0] + against[0] < _MIN_SHARE * pairs:
        return None
    if in_order[1] + against[1] >= _MIN_PAIRS and not _orderly(in_order[1], against[1]):
        # These times contradict the names' own: they are a copy's, not the writers'.
        return None
    return tuple(group[i].path for i in example)


def _orderly(in_order: int, against: int) -> bool:
    """Return whether Kendall's tau (without ties) shows order, or there are too few pairs."""
    pairs = in_order + against
    return pairs < _MIN_PAIRS or (in_order - against) / pairs >= _MAX_TAU


# -- unpadded numbers -----------------------------------------------------------


def _unpadded_files(seen: Iterable[_Seen]) -> dict[str, tuple[str, ...]]:
    """Return directories with file names whose leading numbers sort against their values."""
    numbers: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for one in seen:
        found = _LEADING_NUMBER.match(one.path[len(one.folder) :].lstrip("/"))
        # Seconds and milliseconds may be mixed: as text they still sort in time.
        if found and one.time is None:
            numbers[one.folder, found[1]].setdefault(found[2], one.path)
    wrong = {place: _wrong_pair(by_text) for (place, _), by_text in numbers.items()}
    return {place: pair for place, pair in wrong.items() if pair}


def _wrong_pair(by_text: Mapping[str, str]) -> tuple[str, str] | None:
    """Return what belongs to two numbers, the first the smaller, that sort the other way as text.

    If any two do, then two that are neighbours as text do; and numbers of one
    length never do.
    """
    for below, above in pairwise(sorted(by_text)):
        if int(below) > int(above):
            return by_text[above], by_text[below]
    return None


def _unpadded_folders(
    folders: Iterable[str], seen: Iterable[_Seen], tolerance: float
) -> dict[str, tuple[str, ...]]:
    """Return directories whose numbered children (``hour=9``) sort against their values.

    Numbers that count time are judged by their names; any other (``shard=9``)
    only if the files show that its values came one after the other. A child is
    compared with those of the same key under other parents too: what today's
    directory shows may hold for yesterday's other half.
    """
    newest: dict[str, float] = defaultdict(float)
    for one in seen:
        for folder in _upward(one.folder):
            newest[folder] = max(newest[folder], one.modified)
    levels: dict[tuple[int, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for folder in {f for path in (*folders, *newest) for f in _upward(path)}:
        parent, _, component = folder.rpartition("/")
        if number := _NUMBER_COMPONENT.fullmatch(component):
            after_year = number[1] is None and _YEAR_COMPONENT.search(parent)
            key = number[1] or ("day" if after_year else "")
            levels[parent.count("/") + bool(parent), key][number[2]].append(folder)
    wrong: dict[str, tuple[str, ...]] = {}
    for (_, key), by_text in levels.items():
        pair = _wrong_pair({text: max(paths, key=order_key) for text, paths in by_text.items()})
        in_time = [
            max(newest.get(path, 0.0) for path in by_text[text])
            for text in sorted(by_text, key=int)
        ]
        if pair and (_TIME_KEY.fullmatch(key) or _one_after_the_other(in_time, tolerance)):
            wrong[pair[0].rpartition("/")[0]] = pair
    return wrong


def _upward(folder: str) -> Iterable[str]:
    while folder:
        yield folder
        folder = folder.rpartition("/")[0]


def _one_after_the_other(times: Sequence[float], tolerance: float) -> bool:
    """Return whether there are at least five increasing times (by chance: once in 120)."""
    steps = [later - earlier for earlier, later in pairwise(times)]
    return len(steps) >= 4 and min(steps) > 0 and sum(steps) > tolerance


# -- clocks ---------------------------------------------------------------------


def _ahead(seen: Iterable[_Seen], tolerance: float) -> dict[str, tuple[str, ...]]:
    """Return directories with names whose time is ahead of the file's modification time.

    A time without a zone may be local time. If most of them run ahead by whole
    quarter hours, within a zone's range, that much is the zone and not the clock.
    """
    leads = [(s, s.time.at - s.modified) for s in seen if s.time is not None and s.modified > 0]
    bare = [lead for s, lead in leads if s.time is not None and not s.time.zoned]
    middle = statistics.median(bare) if bare else 0.0
    zone = math.ceil(middle / _QUARTER_HOUR) * _QUARTER_HOUR
    zone = zone if 0 < zone <= _FARTHEST_ZONE else 0.0
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for one, lead in leads:
        excess = lead if one.time is not None and one.time.zoned else lead - zone
        if tolerance < excess < _NOT_A_CLOCK_SECS:
            found[one.folder].append((excess, one.path))
    return {
        place: tuple(path for _, path in sorted(files, reverse=True)[:3])
        for place, files in found.items()
    }
