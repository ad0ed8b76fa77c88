"""The names that patterns select: a test, the ranges to list, and where a listing may jump. Pure.

Names that are not taken are never tracked, so each scan would list them again. Therefore patterns
decide what is listed: the literal beginnings of ``include`` become ranges, and a listing jumps over
folders in which nothing can be selected. Ranges and jumps may show too much and never too little;
the test decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from blizzard_core.settings.globs import Component, Glob, parse_all
from blizzard_core.storage.protocol import Range, order_key
from blizzard_core.storage.ranges import Ranges, name_after, name_before
from blizzard_core.watermark.name_range import LAST

# More ranges than this in one folder become one: a request for each would cost more than it saves.
_RANGES_PER_FOLDER = 16
# The last of ASCII, which every server understands.
_LAST_ASCII = "~"


class _Test:
    """A test for many patterns at once; those that begin with a fixed name are found by that."""

    def __init__(self, globs: Iterable[Glob]) -> None:
        by_name: dict[str | None, list[str]] = defaultdict(list)
        for glob in globs:
            first = glob.components[0]
            by_name[first.start if first.is_fixed else None].append(f"(?:{glob.expression})")
        self._tests = {
            name: re.compile("|".join(texts), re.DOTALL) for name, texts in by_name.items()
        }
        self._other = self._tests.pop(None, None)

    def __call__(self, path: str) -> bool:
        test = self._tests.get(path.partition("/")[0])
        if test is not None and test.fullmatch(path) is not None:
            return True
        return self._other is not None and self._other.fullmatch(path) is not None


@dataclass(frozen=True)
class NameSelection:
    """The names that one of ``include`` matches, or all if there is none, but none of ``exclude``.

    ``ends`` are endings of names that an included name must have where its pattern does not say
    what files are called.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    _parsed: dict[str, tuple[Glob, ...]] = field(init=False, repr=False, compare=False)
    _named: _Test = field(init=False, repr=False, compare=False)
    _folders: _Test = field(init=False, repr=False, compare=False)
    _excluded: _Test = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parsed = parse_all(self.include) | parse_all(self.exclude)
        included = [glob for text in self.include for glob in parsed[text]]
        object.__setattr__(self, "_parsed", parsed)
        object.__setattr__(self, "_named", _Test(g for g in included if g.names_files))
        object.__setattr__(self, "_folders", _Test(g for g in included if not g.names_files))
        object.__setattr__(self, "_excluded", _Test(self._globs(self.exclude)))

    def __bool__(self) -> bool:
        """Return whether it leaves out any name."""
        return bool(self.include or self.exclude)

    def names(self, path: str) -> bool:
        """Return whether a pattern says what the file is called, and matches it."""
        return self._named(path)

    def is_included(self, path: str) -> bool:
        """Return whether a path lies in a folder, or has a name, that is included."""
        return not self.include or self._folders(path) or self._named(path)

    def excluded_by(self, path: str) -> str | None:
        """Return the pattern that excludes a path, if one does."""
        if not self.exclude or not self._excluded(path):
            return None
        return next(text for text in self.exclude if self._matches(text, path))

    def takes(self, path: str) -> bool:
        """Return whether a path is included and not excluded."""
        return self.is_included(path) and not (self.exclude and self._excluded(path))

    def broadest(self) -> list[str]:
        """Return the patterns of ``include`` for which folders are looked for one by one."""
        return [text for text in self.include if any(map(_is_broad, self._parsed[text]))]

    def ranges(self) -> Ranges | None:
        """Return ranges that hold every name that is taken; None if they would hold all names."""
        included = Ranges(_ranges_of(self._globs(self.include))).ranges or (Range("", None),)
        folders = [glob.folder for glob in self._globs(self.exclude)]
        closed = [f"{each.start}/" for each in folders if each is not None and each.is_fixed]
        found = Ranges(_complement(closed)).within(included)
        return None if found == (Range("", None),) else Ranges(found)

    @property
    def lists_all(self) -> bool:
        """True if a listing shows every name, selected or not."""
        is_whole = all(g.components[0].is_any_folders for g in self._globs(self.include))
        return is_whole and all(g.folder is None for g in self._globs(self.exclude))

    def jump_from(self, path: str) -> str | None:
        """Return where a listing may go on that has come to a path: nothing before that is taken.

        None: the next path may be taken. `LAST`: nothing more is.
        """
        jumps = [_jump(glob, path) for glob in self._globs(self.include)]
        found = [jump for jump in jumps if jump is not None]
        over = min(found, key=order_key) if found and len(found) == len(jumps) else None
        behind = self._behind_excluded(path)
        known = [jump for jump in (over, behind) if jump is not None]
        return max(known, key=order_key, default=None)

    def _behind_excluded(self, path: str) -> str | None:
        """Return the end of the outermost folder around a path of which all is excluded."""
        folders = [glob.folder for glob in self._globs(self.exclude)]
        end = path.find("/")
        while end >= 0 and folders:
            if any(each is not None and each.matches(path[:end]) for each in folders):
                return f"{path[:end]}/{_LAST_ASCII}"
            end = path.find("/", end + 1)
        return None

    def _globs(self, patterns: Sequence[str]) -> Iterator[Glob]:
        return (glob for text in patterns for glob in self._parsed[text])

    def _matches(self, text: str, path: str) -> bool:
        return any(glob.matches(path) for glob in self._parsed[text])


def _is_broad(glob: Glob) -> bool:
    return not glob.start and not glob.components[0].is_any_folders and len(glob.components) > 1


def _ranges_of(globs: Iterable[Glob]) -> Iterator[Range]:
    """Yield the ranges of the names that may match, those of many files in one folder as one."""
    of_files: dict[str, list[Range]] = defaultdict(list)
    for glob in globs:
        gap = _range_of(glob)
        if glob.start.count("/") == len(glob.components) - 1:
            of_files[glob.start.rpartition("/")[0]].append(gap)
        else:
            yield gap
    for gaps in of_files.values():
        if len(gaps) > _RANGES_PER_FOLDER:
            ends = [gap.until for gap in gaps if gap.until is not None]
            until = max(ends, key=order_key) if len(ends) == len(gaps) else None
            yield Range(min((gap.after for gap in gaps), key=order_key), until)
        else:
            yield from gaps


def _range_of(glob: Glob) -> Range:
    """Return the range of the names that may match."""
    start = glob.start
    if not start:
        return Range("", None)
    if glob.is_fixed:
        return Range(name_before(start), f"{start}\0")
    # A listing begins behind a name, so where the beginning itself matches it begins before.
    return Range(name_before(start) if glob.matches(start) else start, name_after(start))


def _complement(folders: Iterable[str]) -> Iterator[Range]:
    """Yield the ranges around folders, each given with its slash."""
    start = ""
    for folder in sorted(folders, key=order_key):
        if order_key(folder) < order_key(start):
            continue  # within the one before
        if order_key(start) < order_key(folder):
            yield Range(start, folder)
        start = f"{folder}{_LAST_ASCII}"
    yield Range(start, None)


def _jump(glob: Glob, path: str) -> str | None:
    """Return where names that a pattern matches may begin again; None if a path may be one."""
    *folders, _ = path.split("/")
    for depth, (part, name) in enumerate(zip(glob.components, folders, strict=False)):
        if part.is_any_folders:
            return None
        base = "".join(f"{each}/" for each in folders[:depth])
        is_last = depth == len(glob.components) - 1
        if is_last:
            return f"{base}{name}/{_LAST_ASCII}"
        if not part.matches(name):
            return _next_folder(part, base, name)
    return None


def _next_folder(part: Component, base: str, name: str) -> str:
    """Return where folders that a component matches may begin, behind one that it does not."""
    key, start = order_key(f"{name}/"), order_key(part.start)
    if key.startswith(start):
        return f"{base}{name}/{_LAST_ASCII}"
    if key < start:
        return f"{base}{part.start}"
    return f"{base}{_LAST_ASCII}" if base else LAST
