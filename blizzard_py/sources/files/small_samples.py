"""Disorder in the names of a few files, for a first configuration and a plan. Pure.

`order_guard.inspect` wants many files for a verdict, since it may stop a source. Ten show that
names hold a random part, as those of Spark's jobs do, or that they are in no order at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from blizzard_core.storage.protocol import Entry, is_hidden, order_key
from blizzard_py.sources.files.order_guard import TOLERANCE_SECS, Finding, name_time

_FILES = 10
# So many of a directory's files differ in time, so many pairs of them by more than the tolerance.
_TIMES, _PAIRS = 5, 20
# Kendall's tau of ten random names scatters around 0 by 0.25; that of names in time is near 1.
_MOST_TAU = 0.25
_LEAST_SHARE = 0.8
# A UUID of another version than 7, or a digest of 32 digits.
_RANDOM_PART = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-689a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?=[0-9]*[a-f])[0-9a-f]{32})(?![0-9a-f])",
    re.IGNORECASE,
)
# What sorts before a random part: a day, or a counter of one width. Spark's counts its tasks.
_SORTED_PART = re.compile(r"(?!part-)\D{0,40}\d{4,}", re.ASCII)


def disorder(entries: Sequence[Entry]) -> Finding | None:
    """Return what shows that names do not sort in time; None if they may."""
    files = sorted((e for e in entries if not is_hidden(e.path)), key=lambda e: order_key(e.path))
    sample = [files[at * len(files) // _FILES] for at in range(_FILES)] if files else []
    random = list(dict.fromkeys(each.path for each in sample if _is_random(each.path)))
    if sample and sum(each.path in random for each in sample) >= _LEAST_SHARE * len(sample):
        return Finding("random_names", _folder(random[0]), tuple(random[:2]))
    groups: dict[str, list[Entry]] = defaultdict(list)
    for each in files:
        groups[_folder(each.path)].append(each)
    for folder, group in groups.items():
        if pair := _wrong_pair(group[:_FILES]):
            return Finding("random_names", folder, pair)
    return None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_random(path: str) -> bool:
    name = path.rpartition("/")[2]
    found = _RANDOM_PART.search(name)
    if found is None or name_time(name) is not None:
        return False
    return _SORTED_PART.match(name[: found.start()]) is None


def _wrong_pair(group: Sequence[Entry]) -> tuple[str, str] | None:
    """Return two of ten files in the wrong order, if they are in none."""
    if len(group) < _FILES or len({each.modified for each in group}) < _TIMES:
        return None
    pairs = list(combinations(group, 2))
    against = [(a, b) for a, b in pairs if b.modified - a.modified < -TOLERANCE_SECS]
    in_order = sum(b.modified - a.modified > TOLERANCE_SECS for a, b in pairs)
    count = in_order + len(against)
    if count < _PAIRS or (in_order - len(against)) / count >= _MOST_TAU:
        return None
    first, second = against[0]
    return first.path, second.path
