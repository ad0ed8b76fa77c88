"""Beginnings of files, and what they were recognized as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blizzard_core.settings.formats import FormatSettings


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file, decompressed; ``is_whole`` if it is all of it.

    That of an archive is of its first member with the archive's ending; ``others`` have another
    one.
    """

    path: str
    data: bytes
    is_whole: bool
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextHead:
    """The beginning of a file as text."""

    path: str
    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Recognized:
    """A format, and what the sample did not prove.

    ``doubts`` become comments. ``as_text`` are columns whose values look like numbers without being
    proven ones. ``odd_files`` are files that the format does not fit, with the reason: they will be
    quarantined, so they propose no columns.
    """

    format: FormatSettings
    doubts: tuple[str, ...] = ()
    as_text: frozenset[str] = frozenset()
    odd_files: Mapping[str, str] = field(default_factory=dict)
