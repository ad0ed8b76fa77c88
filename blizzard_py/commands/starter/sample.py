"""A sample of arriving files for ``blizzard init``: their columns, and how directories are named.

A few files from all over the beginning of a source are looked at, as `blizzard schema` and
``schema.infer`` do, and with the same verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blizzard_core.errors import StorageError
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_core.watermark.paths import depth_of
from blizzard_core.watermark.progress import Progress
from blizzard_py.commands.starter.layout import layout_of
from blizzard_py.job import FieldSpec
from blizzard_py.schema.inference import Inference, Rules
from blizzard_py.sources.files.discovery import notes_of
from blizzard_py.sources.files.file_names import accepts, names_that_count
from blizzard_py.sources.files.sampling import chosen, first_lines

SAMPLE_FILES = 8
SAMPLE_BYTES = 1 << 20
# How far a listing is followed: keys, and pages, of which a local directory is one.
_KEYS = 10_000
_PAGES = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: columns from ``records`` of ``files``, or the ``problem`` why there are none.

    ``left_out`` are fields that cannot be columns, with the reason; ``layout`` is the template
    of directories that are named by time, if they are. ``notes`` are remarks on the source.
    """

    fields: tuple[FieldSpec, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    records: int = 0
    layout: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


def sample(storage: Storage) -> Sample:
    """Look at files of a source. Problems are part of the answer."""
    try:
        entries, others = _entries(storage)
        if not entries:
            summary = (
                f", and what is there, {others[0].path} for one, has another name" if others else ""
            )
            names = names_that_count(SourceSettings(source_uri=storage.uri))
            return Sample(
                problem=f"{storage.uri} holds no NDJSON file yet{summary}: {names} (CSV and"
                " Parquet are read as tables: docs/reference/tables.md)"
            )
        layout = layout_of(entry.path for entry in entries)
        paths = [entry.path for entry in entries]
        progress = Progress(depth=depth_of(paths))
        notes = tuple(notes_of(SourceSettings(source_uri=storage.uri), progress, paths))
        inference = Inference(Rules(timestamps=True))
        files = chosen(entries, SAMPLE_FILES)
        for file in files:
            for number, line in enumerate(first_lines(storage, file, SAMPLE_BYTES), 1):
                inference.add(line, f"{file.path}, line {number}")
    except StorageError as error:
        return Sample(problem=str(error))
    found = inference.result()
    problem = ""
    if not found.fields:
        read = f"no line of {files[0].path}{_and_others(len(files))} can be read as NDJSON"
        problem = f"{read}, which has one JSON object to a line and no list around them"
    return Sample(found.fields, found.left_out, len(files), found.records, layout, problem, notes)


def _and_others(files: int) -> str:
    more = files - 1
    return f" and {more:,} {'other' if more == 1 else 'others'}" if more else ""


def _entries(storage: Storage) -> tuple[list[Entry], list[Entry]]:
    """Files with something in them, of the beginning of the listing: NDJSON by name, and others."""
    accept = accepts(SourceSettings(source_uri=storage.uri))
    found: list[Entry] = []
    others: list[Entry] = []
    keys = 0
    for number, page in enumerate(storage.list_range("", None), 1):
        for entry in page.entries:
            if entry.size and not is_hidden(entry.path):
                (found if accept(entry.path) else others).append(entry)
        keys += len(page.entries)
        if keys >= _KEYS or number == _PAGES:
            break
    return found, others
