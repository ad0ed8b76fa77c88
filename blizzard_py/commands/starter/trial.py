"""A trial of a format on the files that it was told from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blizzard_core.errors import Unavailable
from blizzard_core.settings.formats import FormatSettings
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.formats.names import format_of
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import JobFile, RowSchema
from blizzard_py.lines.failure import FileFailed
from blizzard_py.lines.framing import Piece


@dataclass(frozen=True, slots=True)
class Trial:
    """The rows and the bad records of a sample; a reason for each file that has bad ones."""

    rows: int = 0
    bad: int = 0
    reasons: tuple[str, ...] = ()


def tried(
    storage: Storage,
    files: Sequence[Entry],
    limit: int,
    settings: FormatSettings,
    schema: RowSchema,
) -> Trial:
    """Read the beginnings of the files, ``limit`` bytes or a piece more, as the daemon would.

    Raises `Unavailable` if the store does not answer.
    """
    rows = bad = 0
    reasons: list[str] = []
    for file in files:
        try:
            of_file = _tried(storage, file, limit, settings, schema)
        except FileFailed as error:
            if error.outcome == "retry":
                raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
            reasons.append(f"{file.path}: {error.reason}")
            continue
        rows += of_file.rows
        bad += of_file.bad
        reasons += of_file.reasons
    return Trial(rows, bad, tuple(reasons))


def _tried(
    storage: Storage, file: Entry, limit: int, settings: FormatSettings, schema: RowSchema
) -> Trial:
    form = format_of(settings)
    decoder = form.decoder(schema, tolerant=True, fast=False)
    rows = size = bad = 0
    reasons: list[str] = []
    with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
        for item in opened_file.pieces(form, schema):
            if isinstance(item, Piece):
                parsed = decoder.decode(item)
                rows += parsed.table.num_rows
                bad += len(parsed.bad)
                reasons += [record.reason for record in parsed.bad[:1]]
                size += len(item.data)
            else:
                bad += 1
                reasons.append(item.reason)
            if size > limit:
                break
    return Trial(rows, bad, tuple(f"{file.path}: {reason}" for reason in reasons[:1]))
