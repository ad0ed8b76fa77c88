"""Dead letters of what a replay has written, told as of the source's files."""

from __future__ import annotations

from dataclasses import replace

from blizzard_py.dead_letters.reader import DeadLetter, original_of
from blizzard_py.replay.sources import records_uri
from blizzard_py.sources.parts import Parts


def original(live: Parts, letter: DeadLetter) -> DeadLetter:
    """The letter as of the source's file, also where a replay had written its record anew.

    Which line of the source's file that was nobody knows then.
    """
    records = f"{records_uri(live)}/"
    if not letter.uri.startswith(records):
        return letter
    path = original_of(letter.uri.removeprefix(records))
    return replace(letter, uri=f"{live.stores.source.uri}/{path}", line=0)
