"""Open dead letters of a source by their reason, for the status page. Reads only.

A look costs a LIST for each 1,000 open objects, and each of the newest objects is read once.
Everything in a letter is foreign text: it is cleaned as errors are, and cut.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from blizzard_core.errors import NotFound
from blizzard_core.limits import SHOWN_LETTER_BYTES
from blizzard_core.redact import clean_text
from blizzard_core.storage.protocol import Storage
from blizzard_core.text import printable, shortened
from blizzard_py.dead_letters.reader import (
    DeadLetter,
    DeadLetterObject,
    Kind,
    UnreadableDeadLetter,
    objects,
    read,
)

# So many of the newest objects are read, and of each so many letters.
OBJECTS = 50
LETTERS_EACH = 1_000
# How many objects are listed; more are said to be more.
LISTED = 10_000
# How many reasons are shown, and files of each.
GROUPS = 20
FILES = 3
SAMPLE_CHARACTERS = 300
# Parts of an error that differ from letter to letter.
_VARIABLE = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,:]*")
_SHORTEST_REASON = 8


@dataclass(frozen=True, slots=True)
class _Reason:
    """The common part of letters: kind, stage, and the error without its variable parts."""

    kind: Kind
    stage: str
    parts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The last telling part of the error, which `replay --reason` finds; empty if none is."""
        long = [part for part in self.parts if len(part) >= _SHORTEST_REASON]
        return long[-1] if long else ""


@dataclass(slots=True)
class _Group:
    count: int
    error: str
    letter_id: str
    newest: str = ""
    files: list[str] = field(default_factory=list)
    sample: dict[str, Any] | None = None


class OpenLetters:
    """The open letters of one source; objects that were read are kept while they are shown."""

    def __init__(self, dlq: Storage, source_id: str, *, samples: bool) -> None:
        """Read from ``dlq``. Without ``samples`` no text of a record is shown."""
        self._dlq = dlq
        self._source_id = source_id
        self._samples = samples
        self._read: dict[DeadLetterObject, dict[_Reason, _Group]] = {}

    def look(self) -> dict[str, Any]:
        """Return the reasons of the newest letters, the most frequent first.

        Raises `StorageError`.
        """
        count = 0
        newest: deque[DeadLetterObject] = deque(maxlen=OBJECTS)
        for found in islice(objects(self._dlq, self._source_id), LISTED):
            count += 1
            newest.append(found)
        self._read = {
            found: self._read[found] if found in self._read else self._groups(found)
            for found in reversed(newest)
        }
        groups: dict[_Reason, _Group] = {}
        for each in self._read.values():
            for reason, group in each.items():
                known = groups.get(reason)
                if known is None:
                    groups[reason] = replace(group)
                else:
                    known.count += group.count
                    known.files = [*dict.fromkeys([*known.files, *group.files])][:FILES]
        ranked = sorted(groups.items(), key=lambda item: -item[1].count)
        return {
            "objects": count,
            "read": len(newest),
            "complete": count == len(newest),
            "more_reasons": max(0, len(ranked) - GROUPS),
            "groups": [_shown(reason, group) for reason, group in ranked[:GROUPS]],
        }

    def _groups(self, found: DeadLetterObject) -> dict[_Reason, _Group]:
        groups: dict[_Reason, _Group] = {}
        if found.size > SHOWN_LETTER_BYTES:
            why = f"has {found.size:,} bytes, too many to look into"
            return {_Reason(found.kind, "", (why,)): _Group(1, why, found.id)}
        try:
            for letter in islice(read(self._dlq, found), LETTERS_EACH):
                reason = _Reason(found.kind, clean_text(letter.stage), _fixed_parts(letter.error))
                group = groups.get(reason)
                if group is None:
                    group = groups[reason] = _Group(
                        0,
                        clean_text(letter.error),
                        found.id,
                        clean_text(letter.timestamp),
                        sample=self._sample(letter),
                    )
                group.count += 1
                if letter.uri not in group.files and len(group.files) < FILES:
                    group.files.append(letter.uri)
        except NotFound:  # put away meanwhile
            return {}
        except UnreadableDeadLetter as error:
            why = clean_text(str(error))
            groups[_Reason(found.kind, "", (why,))] = _Group(1, why, found.id)
        return groups

    def _sample(self, letter: DeadLetter) -> dict[str, Any] | None:
        if not self._samples or not letter.raw:
            return None
        text = letter.raw[: 4 * SAMPLE_CHARACTERS].decode("utf-8", "backslashreplace")
        return {"line": letter.line, "text": shortened(clean_text(text), SAMPLE_CHARACTERS)}


def _fixed_parts(error: str) -> tuple[str, ...]:
    """Return the parts of an error that are alike in other letters of the same reason."""
    return tuple(clean_text(part) for part in _VARIABLE.split(error[:2_000]) if part.strip())


def _shown(reason: _Reason, group: _Group) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "stage": reason.stage,
        "error": group.error,
        "reason": reason.text,
        "count": group.count,
        "newest": group.newest,
        "letter": group.letter_id,
        "files": [printable(uri) for uri in group.files],
        "sample": group.sample,
    }
