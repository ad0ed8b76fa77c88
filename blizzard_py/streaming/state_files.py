"""Whether every file of state that Spark has committed can be seen in the working copy.

Executors write these files. Where they are on other machines, a shared file system may show a new
file only a minute later, and a pack made in between would lack it, with nobody to notice before
a restart. Spark's commit log says which there are: since version 2 of the checkpoint's format each
file of state has an id in its name, and each entry has the ids of its micro-batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def unseen(checkpoint: Path, micro_batch: int) -> frozenset[str]:
    """The ids of files of state that a micro-batch has committed, and that are not to be seen."""
    entry = (checkpoint / "commits" / str(micro_batch)).read_text().splitlines()[1]
    wanted = frozenset(_leaves(json.loads(entry)["stateUniqueIds"]))
    names = (path.name for path in (checkpoint / "state").rglob("*_*.*"))
    return wanted - {name.partition("_")[2].partition(".")[0] for name in names}


def _leaves(ids: Any) -> Iterator[str]:
    """By operator, partition and store."""
    if isinstance(ids, str):
        yield ids
        return
    for each in ids.values() if isinstance(ids, dict) else ids:
        yield from _leaves(each)
