"""A sample of arriving files for ``blizzard init``: their columns, and how directories are named.

A small source is read to its end; of a larger one some files from all over its beginning are looked
at, as `blizzard schema` and ``schema.infer`` do, and with the same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath

from blizzard_core.errors import StorageError, Unavailable
from blizzard_core.settings.format_options import AvroOptions, DataAddress
from blizzard_core.settings.formats import (
    CsvOptions,
    ExcelOptions,
    FormatSettings,
    NdjsonOptions,
    OrcOptions,
    ParquetOptions,
    TextFileOptions,
    XmlOptions,
)
from blizzard_core.settings.globs import PathColumnType
from blizzard_core.settings.schema import RESCUED
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_core.text import counted
from blizzard_core.watermark.paths import depth_of
from blizzard_core.watermark.progress import Progress
from blizzard_py.commands.starter.heads import FileHead
from blizzard_py.commands.starter.layout import layout_of, path_columns_of
from blizzard_py.commands.starter.recognize import recognize
from blizzard_py.commands.starter.trial import Trial, tried
from blizzard_py.commands.starter.workbook import SAMPLE_ROWS, recognize_workbooks
from blizzard_py.formats.excel.archive import Archive
from blizzard_py.formats.excel.sheet import Row, sheet_rows
from blizzard_py.formats.excel.workbook import open_workbook
from blizzard_py.formats.source_file import SourceFile
from blizzard_py.job import FieldSpec, JobFile, RowSchema
from blizzard_py.lines.codec_names import ZIP_ENDING
from blizzard_py.lines.failure import FileFailed
from blizzard_py.schema.inference import Inference, Rules
from blizzard_py.sources.files.discovery import notes_of
from blizzard_py.sources.files.file_names import accepts
from blizzard_py.sources.files.order_guard import evenly
from blizzard_py.sources.files.sampling import add_sample
from blizzard_py.sources.files.small_samples import disorder

# A source of no more than this is read to its end.
WHOLE_BYTES = 64 << 20
WHOLE_FILES = 1000
SAMPLE_FILES = 64
SAMPLE_BYTES = 1 << 20
# Some files tell the format; the beginning of each is in memory.
_HEADS = 8
# So much of a file shows its fields, whatever was read of others.
_LEAST_BYTES = 64 << 10
_LINES = NdjsonOptions()
# Names of members about the data.
_NO_DATA = re.compile(r"(read[ _-]?me|licen[cs]e|notice|changelog|about)\b", re.IGNORECASE)
# JSON documents have an ending of NDJSON; the content tells them.
_RECOGNIZED = (
    NdjsonOptions(),
    CsvOptions(type="csv"),
    XmlOptions(type="xml", row_tag="row"),
    AvroOptions(type="avro"),
    ParquetOptions(type="parquet"),
    OrcOptions(type="orc"),
    ExcelOptions(type="excel"),
)
_KINDS = {form.type: accepts(SourceSettings(source_uri="/", format=form)) for form in _RECOGNIZED}
_ENDINGS = [ending for form in _RECOGNIZED for ending in form.endings]
# How far a listing is followed: keys, and pages, of which a local directory is one.
_KEYS = 10_000
_PAGES = 2_000
# How many sheets of a workbook are looked at.
_SHEETS = 8
_NO_TRIAL = Trial()


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: columns from ``records`` of ``files``, or the ``problem`` why there are none.

    ``left_out`` are fields that cannot be columns, with the reason; ``layout`` is the template
    of directories that are named by time, if they are, and ``path_columns`` are columns whose
    values others name. ``notes`` are remarks on the source, and
    ``doubts`` what the sample does not prove. ``trial`` is what the format makes of the sample.
    ``glob`` is the pattern of the files' names, where the format has none. It ``is_whole`` if all
    records were read. ``nulls`` are paths that never had a value. ``disorder`` is why names do not
    sort in time. Fields without a column can be captured, if the sample ``is_captured``.
    """

    fields: tuple[FieldSpec, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    records: int = 0
    layout: str = ""
    path_columns: Mapping[str, PathColumnType] = field(default_factory=dict)
    problem: str = ""
    notes: tuple[str, ...] = ()
    format: FormatSettings = _LINES
    doubts: tuple[str, ...] = ()
    trial: Trial = _NO_TRIAL
    glob: str = ""
    is_whole: bool = False
    nulls: frozenset[str] = frozenset()
    disorder: str = ""
    is_captured: bool = False


def sample(storage: Storage) -> Sample:
    """Look at files of a source. Problems are part of the answer."""
    try:
        entries, others, is_listed = _entries(storage)
        if not entries:
            summary = (
                f", and what is there, {others[0].path} for one, has another name" if others else ""
            )
            return Sample(
                problem=f"{storage.uri} holds no file yet that can be read{summary}:"
                f" {', '.join(_ENDINGS)} (any other text: format: text)"
            )
        paths = [entry.path for entry in entries]
        layout = layout_of(paths)
        progress = Progress(depth=depth_of(paths))
        inference = Inference(Rules(timestamps=True))
        is_whole = is_listed and len(entries) <= WHOLE_FILES
        is_whole = is_whole and sum(entry.size for entry in entries) <= WHOLE_BYTES
        files = entries if is_whole else evenly(entries, SAMPLE_FILES)
        shown = evenly(files, _HEADS)
        heads = [_head(storage, file) for file in shown]
        beside = {head.path: head.others for head in heads if head.others}
        told = recognize(heads)
        if isinstance(told.format, ExcelOptions):
            told = recognize_workbooks({file.path: _sheets(storage, file) for file in shown})
        form = told.format
        glob = "" if form.endings else _glob(files[0].path)
        few = disorder(entries)
        source = SourceSettings(
            source_uri=storage.uri,
            format=form,
            include=(glob,) if glob else (),
            use_watermark=few is None,
        )
        notes = (*notes_of(source, progress, paths), *_about_others(others, glob))
        read = 0
        for file in files:
            if file.path not in told.odd_files:
                skipped = beside.get(file.path, ())
                limit = max(WHOLE_BYTES - read, _LEAST_BYTES) if is_whole else SAMPLE_BYTES
                read += add_sample(inference, storage, file, limit, form, skipped)
        is_whole = is_whole and read < WHOLE_BYTES
        found = inference.result()
        fields = _fields(form, found.fields, told.as_text)
        trial, is_captured = _NO_TRIAL, False
        if fields:
            limit = WHOLE_BYTES if is_whole else SAMPLE_BYTES
            trial, is_captured = _trial(storage, files, limit, form, fields)
    except StorageError as error:
        return Sample(problem=str(error))
    problem = ""
    odd = tuple(f"{path} will be quarantined: {why}" for path, why in told.odd_files.items())
    if not fields:
        problem = f"no record of {files[0].path}{_and_others(len(files))} can be read"
        problem += f": {found.problem}" if found.problem else ""
        problem += "".join(f"; {each}" for each in odd[:1])
    return Sample(
        fields,
        found.left_out,
        len(files),
        found.records,
        layout,
        path_columns_of(paths, layout, [spec.input_name for spec in fields]),
        problem,
        notes,
        form,
        (*told.doubts, *odd, *_about_members(beside)),
        trial,
        glob,
        is_whole,
        found.nulls,
        "" if few is None else f"names do not sort in time, as {' and '.join(few.examples)}",
        is_captured,
    )


def _trial(
    storage: Storage,
    files: Sequence[Entry],
    limit: int,
    form: FormatSettings,
    fields: tuple[FieldSpec, ...],
) -> tuple[Trial, bool]:
    """Return a trial, and whether fields without a column can be captured at no record's cost."""
    ignored = RowSchema(fields)
    if form.fixed_columns or RESCUED in {spec.name.lower() for spec in fields}:
        return tried(storage, files, limit, form, ignored), False
    found = tried(storage, files, limit, form, replace(ignored, unexpected_fields="capture"))
    if found.bad:  # such as `NaN`, which no rest of a record may hold
        other = tried(storage, files, limit, form, ignored)
        if other.bad < found.bad:
            return other, False
    return found, True


def _about_others(others: Sequence[Entry], glob: str) -> Iterator[str]:
    """Yield a note on files that will be ignored."""
    if others and not glob:
        count = counted(len(others), "file")
        yield f"{count} with other names will be ignored, such as {others[0].path}"


def _glob(path: str) -> str:
    """Return the pattern of names with the ending of a file, and that of any codec behind it."""
    ending = next((each for each in _ENDINGS if each in path.lower()), "")
    return f"**/*{ending}*"


def _fields(
    form: FormatSettings, inferred: Sequence[FieldSpec], as_text: Collection[str]
) -> tuple[FieldSpec, ...]:
    """Return the columns: those that the format fixes, or the inferred ones."""
    if isinstance(form, TextFileOptions):
        return tuple(FieldSpec(name, "string", nullable=True) for name in form.fixed_columns)
    return tuple(
        FieldSpec(spec.name, "string", nullable=True, source=spec.source)
        if spec.name in as_text
        else spec
        for spec in inferred
    )


def _and_others(files: int) -> str:
    more = files - 1
    return f" and {more:,} {'other' if more == 1 else 'others'}" if more else ""


def _head(storage: Storage, file: Entry) -> FileHead:
    """Return the first bytes of a file; nothing of a damaged one."""
    data = bytearray()
    try:
        with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
            if _KINDS["excel"](file.path):  # an archive, whose members say less
                data += opened_file.read_range(0, SAMPLE_BYTES)
                is_whole = len(data) == opened_file.size
                return FileHead(file.path, bytes(data), is_whole)
            others: tuple[str, ...] = ()
            for place, blocks in enumerate(opened_file.streams()):
                others = _other_members(file.path, opened_file.members)
                if others and opened_file.members[place] in others:
                    continue
                for block in blocks:
                    data += block
                    if len(data) > SAMPLE_BYTES:
                        return FileHead(
                            file.path, bytes(data[:SAMPLE_BYTES]), is_whole=False, others=others
                        )
                break
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
        return FileHead(file.path, b"", is_whole=False)
    return FileHead(file.path, bytes(data), is_whole=True, others=others)


def _other_members(path: str, members: Sequence[str]) -> tuple[str, ...]:
    """Return the members that are no data by their name or ending, if others are."""
    ending = PurePosixPath(path.lower().removesuffix(ZIP_ENDING)).suffix
    others = tuple(
        name
        for name in members
        if not name.lower().endswith(ending) or _NO_DATA.match(name.rpartition("/")[2])
    )
    return others if len(others) < len(members) else ()


def _about_members(others: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for path, members in list(others.items())[:1]:
        yield (
            f"the archive {path} also has {members[0]}, which is read like the data: it makes rows"
            " or bad records, or quarantines the archive; pack archives without it"
        )


def _sheets(storage: Storage, file: Entry) -> dict[str, list[Row]]:
    """Return the first rows of a workbook's first visible sheets; nothing of a damaged one."""
    try:
        with SourceFile(storage, JobFile(file.path, file.size)) as opened_file:
            archive = Archive(opened_file)
            workbook = open_workbook(archive)
            visible = (sheet for sheet in workbook.sheets if sheet.is_visible)
            return {
                sheet.name: _first_rows(sheet_rows(archive, workbook, sheet, DataAddress()))
                for sheet in islice(visible, _SHEETS)
            }
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
        return {}


def _first_rows(rows: Iterator[Row]) -> list[Row]:
    """Return the first rows of a sheet; none of one that cannot be read."""
    try:
        return list(islice(rows, SAMPLE_ROWS))
    except FileFailed as error:
        if error.outcome == "retry":
            raise
        return []


def _entries(storage: Storage) -> tuple[list[Entry], list[Entry], bool]:
    """Return files of the beginning of the listing: of the most frequent format, and others.

    Empty files do not count. The last value is whether these are all.
    """
    by_format: dict[str, list[Entry]] = {}
    others: list[Entry] = []
    keys = 0
    is_all = True
    for number, page in enumerate(storage.list_range("", None), 1):
        for entry in page.entries:
            if entry.size and not is_hidden(entry.path):
                kind = next((name for name, accept in _KINDS.items() if accept(entry.path)), None)
                (others if kind is None else by_format.setdefault(kind, [])).append(entry)
        keys += len(page.entries)
        if keys >= _KEYS or number == _PAGES:
            is_all = False
            break
    most = max(by_format.values(), key=len, default=[])
    others += [entry for some in by_format.values() if some is not most for entry in some]
    return most, others, is_all
