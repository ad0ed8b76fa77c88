"""The files that polls take, by names and times, and why they ignore the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from blizzard_core.limits import IGNORED_NAMES
from blizzard_core.settings.formats import FORMATS
from blizzard_core.settings.sources import SourceCompression, SourceSettings
from blizzard_core.storage.protocol import Entry, is_hidden
from blizzard_core.text import iso
from blizzard_core.watermark.selection import NameSelection
from blizzard_py.lines.codec_names import CODEC_ENDINGS, ZIP_ENDING
from blizzard_py.sources.ignored_names import NONE_IGNORED, IgnoredNames

# The ending that each codec adds to a format's.
_CODECS: Mapping[SourceCompression, str] = dict(
    [("none", ""), *CODEC_ENDINGS.items(), ("zip", ZIP_ENDING)]
)

# Empty objects by which stores and their tools note folders.
_FOLDERS = ("/", "_$folder$")


def endings_of(source: SourceSettings, compression: SourceCompression | None = None) -> list[str]:
    """Return the endings of names that count, under another ``compression`` if it is given."""
    codec = compression or source.advanced.compression
    codecs = list(_CODECS.values()) if codec == "auto" else [_CODECS[codec]]
    if not source.format.streams:
        codecs = [""]
    return [f"{ending}{packed}" for packed in codecs for ending in source.format.endings]


@lru_cache(maxsize=64)
def _selection(include: tuple[str, ...], exclude: tuple[str, ...]) -> NameSelection:
    return NameSelection(include, exclude)


def selection_of(source: SourceSettings) -> NameSelection:
    """Return the names that ``include`` and ``exclude`` select."""
    return _selection(source.include, source.exclude)


def _has_any_name(_path: str) -> bool:
    """Return True: the format has no endings, and ``include`` says which files are read."""
    return True


def accepts(
    source: SourceSettings, compression: SourceCompression | None = None
) -> Callable[[str], bool]:
    """Return whether polls take a path, by its name."""
    endings = endings_of(source, compression)
    has_ending = _ends_with(tuple(endings)) if endings else _has_any_name
    selection = selection_of(source)
    if not selection:
        return has_ending

    def takes(path: str) -> bool:
        return selection.takes(path) and (has_ending(path) or selection.names(path))

    return takes


def accepts_file(source: SourceSettings) -> Callable[[Entry], bool]:
    """Return whether polls take a file, by its name and its modification time."""
    accept = accepts(source)
    first, end = source.advanced.modified_between
    return lambda entry: accept(entry.path) and first <= entry.modified < end


class FileFilter:
    """`accepts_file` for one scan, which keeps the files that it ignores. From any thread."""

    def __init__(self, source: SourceSettings) -> None:
        self._source = source
        self._accepts = accepts_file(source)
        self._ignored: dict[str, float] = {}

    def __call__(self, entry: Entry) -> bool:
        """Return whether polls take a file that is not hidden."""
        if self._accepts(entry):
            return True
        if not entry.path.endswith(_FOLDERS) and len(self._ignored) < IGNORED_NAMES:
            self._ignored[entry.path] = entry.modified
        return False

    @property
    def ignored(self) -> IgnoredNames:
        """Return what was ignored so far, at most `IGNORED_NAMES`."""
        first = min(self._ignored, default=None)
        if first is None:
            return NONE_IGNORED
        reason = why_ignored(first, self._source, self._ignored[first]) or ""
        wanted = bool(selection_of(self._source)) or is_timed(self._source)
        return IgnoredNames(len(self._ignored), first, reason, wanted)


def _why_out_of_time(modified: float, source: SourceSettings) -> str | None:
    first, end = source.advanced.modified_between
    if modified < first:
        return f"it was modified at {iso(modified)}, before modified_after ({iso(first)})"
    if modified >= end:
        return f"it was modified at {iso(modified)}, not before modified_before ({iso(end)})"
    return None


def _ends_with(endings: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda path: path.lower().endswith(endings)


def names_that_count(source: SourceSettings) -> str:
    """Return the endings of all codecs, for messages."""
    plain = ", ".join(source.format.endings)
    packed = f"; each also with one of {', '.join(filter(None, _CODECS.values()))}"
    return plain + (packed if source.format.streams else "")


def can_count(source: SourceSettings) -> Callable[[str], bool]:
    """Return whether polls take a path under any setting of ``format`` and ``compression``."""
    accept = accepts(source, "auto")
    known = _ends_with(
        tuple(
            f"{ending}{codec}"
            for each in FORMATS
            for ending in each.endings
            for codec in _CODECS.values()
        )
    )
    return lambda path: not is_hidden(path) and (accept(path) or known(path))


def is_timed(source: SourceSettings) -> bool:
    """Return whether the source reads files of some modification times only."""
    limits = source.advanced
    return limits.modified_after is not None or limits.modified_before is not None


def why_ignored(path: str, source: SourceSettings, modified: float | None = None) -> str | None:
    """Return why a file below the root is not one of the source's, or None if it is.

    ``modified`` is when it was modified, if it is there.
    """
    if not path:
        return "is the source's root, not a file"
    if is_hidden(path):
        part = next(part for part in path.split("/") if part.startswith(("_", ".")))
        return f"{part!r} starts with {part[0]!r}: hidden names are never data"
    if accepts(source)(path):
        return None if modified is None else _why_out_of_time(modified, source)
    selection = selection_of(source)
    if not selection.is_included(path):
        return f"no pattern of include matches it: {', '.join(source.include)}"
    excluded_by = selection.excluded_by(path)
    if excluded_by is not None:
        return f"exclude has a pattern that matches it: {excluded_by}"
    compression = source.advanced.compression
    counting = names_that_count(source) if compression == "auto" else ", ".join(endings_of(source))
    reason = f"its ending is not one that counts for compression: {compression} ({counting})"
    if source.format.type != "ndjson":
        reason = reason.replace("for compression", f"for format: {source.format.type}, compression")
    fitting = next((name for name in _CODECS if accepts(source, name)(path)), None)
    return reason if fitting is None else f"{reason}; it would for {fitting} or auto"
