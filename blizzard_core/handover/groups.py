"""Groups: outputs that are committed together and replace earlier rows. Pure.

Blizzard publishes sources that it reads repeatedly (work units, snapshots) only in groups. It
renames the outputs to ``unit-….parquet`` anywhere in the table. Then it writes the group's
manifest at `group_path`, under the next number of its source, only if there is none. Listings
ignore names that begin with `UNIT_FILE_PREFIX`, so only the manifest makes the files known.

Penguin applies the manifests of a source in the order of their numbers, one Delta commit each. A
commit adds the files and removes all earlier rows that the group replaces. A group selects these
rows in three ways, alone or together: by ranges of `UNIT_COLUMN`, by the source files in
`SOURCE_FILE_COLUMN`, or by the output ids of whole files.

**Promise: order.** An older reading never arrives after the one that replaces it, because no
number is skipped, even if its group has no files. Numbers begin at 1 and never restart. The last
manifest of a source is never removed, so a process that lost its state finds the number again.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import StateError

# The column with a row's unit and slice. Ranges use text order.
UNIT_COLUMN = "_unit"
# The column with a row's source file, if the pipeline has it (`metadata_columns`).
SOURCE_FILE_COLUMN = "_source_file"
# The prefix of base names of files that travel by manifest.
UNIT_FILE_PREFIX = "unit-"
GROUPS_FOLDER = "_blizzard/groups"
# The folder of committers' state, and its keys for the number of each source's last group in
# the table and for the reason why its next one waits.
COMMITTERS_FOLDER = "_penguin"
APPLIED_KEY = "groups"
BLOCKED_KEY = "blocked"

_VERSION = 1
_NAME = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class GroupFile:
    """One file of a group: its path in the table, its size in bytes, its rows, who wrote it."""

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    rows: Annotated[int, msgspec.Meta(ge=0)]
    output_id: str


@dataclass(frozen=True, slots=True)
class Group:
    """The files that one batch publishes, and the rows that it replaces.

    ``replace`` are half-open ranges of `UNIT_COLUMN`: [first, behind). ``source_files`` are values
    of `SOURCE_FILE_COLUMN`. ``outputs`` are output ids that published the same rows before. The
    group waits until each of them was committed: a later one would bring the rows again. Without
    ``source_files``, which select rows, these outputs are removed whole. ``epoch`` is the writer's
    checkpoint epoch; ``batch`` names the batch.
    """

    source: str
    seq: Annotated[int, msgspec.Meta(ge=1)]
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    batch: str
    files: tuple[GroupFile, ...]
    replace: tuple[tuple[str, str], ...] = ()
    source_files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def group_path(source_id: str, seq: int) -> str:
    """Return where the manifest of that number lies, relative to the table."""
    return f"{GROUPS_FOLDER}/{source_id}/{seq:020d}.json"


def seq_of(path: str) -> int | None:
    """Return the number of the manifest at ``path``; None if it is not a manifest."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return int(found[1]) if found else None


def encode_group(group: Group) -> bytes:
    """Encode the manifest; the same group gives the same bytes."""
    return json.dumps({"v": _VERSION, **msgspec.to_builtins(group)}, ensure_ascii=False).encode()


def decode_group(data: bytes, where: str, source_id: str, seq: int) -> Group:
    """Decode the manifest at the place of that source and number.

    Raises `StateError` naming ``where`` if it is not understood or belongs to another place.
    """
    try:
        document: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise StateError(f"{where}: is not JSON: {error}; restore it") from error
    version = document.pop("v", None) if isinstance(document, dict) else None
    if version != _VERSION or version is True:
        raise StateError(
            f"{where}: is a manifest of version {version!r}, and this release knows {_VERSION};"
            " run the release that wrote it"
        )
    group = decode_document(Group, document, where)
    if (group.source, group.seq) != (source_id, seq):
        raise StateError(f"{where}: is number {group.seq} of {group.source!r}; restore it")
    wrong = [path for path in (file.path for file in group.files) if not _is_unit_file(path)]
    if wrong:
        raise StateError(f"{where}: names {wrong[0]!r}, which is no file of a group; restore it")
    odd = [first for first, behind in group.replace if not first < behind]
    if odd:
        raise StateError(f"{where}: the range that begins at {odd[0]!r} is empty; restore it")
    return group


def _is_unit_file(path: str) -> bool:
    parts = path.split("/")
    return parts[-1].startswith(UNIT_FILE_PREFIX) and not any(p in {"", ".", ".."} for p in parts)
