"""Copying of row groups in a task, and the settings that need decoded rows instead.

A file's row groups join those of earlier files in an open output, if there is room. Larger files
write outputs of their own. Outputs are rolled by size. Nothing of a file counts if it fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from blizzard_core.limits import FOOTER_BYTES
from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.columnar.copying import CopyPlan, CopyRules, RowGroup
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.job import FieldSpec, IngestSettings, StagedOutput
from blizzard_py.kernels.write.joined_file import JoinedFile
from blizzard_py.kernels.write.parquet_file import ParquetFormat
from blizzard_py.kernels.write.rolling_outputs import StagedNames

# Each block is a request to the source's store.
_BLOCK_BYTES = 8 << 20
# Penguin refuses files with longer footers; the rest is for the columns.
_ENTRIES_BYTES = FOOTER_BYTES // 2


class CopiedOutputs:
    """The outputs of one task that hold copied row groups."""

    def __init__(self, sink: Storage, names: StagedNames, form: ParquetFormat) -> None:
        self._sink = sink
        self._names = names
        self._form = form
        self._shared: JoinedFile | None = None
        self._place: tuple[str, pa.Schema] | None = None
        self._done: list[StagedOutput] = []

    @contextlib.contextmanager
    def copied(self, file: OpenFile, plan: CopyPlan, directory: str) -> Iterator[None]:
        """Copy a file's row groups, which count unless the block raises.

        Raises `FileFailed` if the file cannot be read.
        """
        shared = self._with_room(plan, directory)
        before = 0 if shared is None else shared.groups
        own: list[JoinedFile] = []
        try:
            for group in plan.groups:
                target = shared or self._own(own, plan, group)
                target.copy(group, _blocks(file, group))
            for joined in own[-1:]:
                self._close(joined)
            yield
        except BaseException:
            if shared is not None:
                shared.forget(before)
            for joined in own:
                self._remove(joined)
            raise
        self._done += [_report(joined, directory) for joined in own]

    def close(self) -> list[StagedOutput]:
        """Finish the open output, and return the report."""
        self._finish_shared()
        return self._done

    def discard(self) -> None:
        """Remove the open output; others stay unreported."""
        if self._shared is not None:
            self._remove(self._shared)

    def _with_room(self, plan: CopyPlan, directory: str) -> JoinedFile | None:
        """Return the output for a whole file; None if the file fills outputs of its own."""
        entries = sum(len(group.entry) for group in plan.groups)
        if plan.size > self._form.layout.file_bytes or entries > _ENTRIES_BYTES:
            return None
        place = (directory, plan.schema)
        if self._shared is not None and (
            place != self._place or not self._has_room(self._shared, plan.size, entries)
        ):
            self._finish_shared()
        if self._shared is None:
            self._shared, self._place = self._opened(plan), place
        return self._shared

    def _own(self, own: list[JoinedFile], plan: CopyPlan, group: RowGroup) -> JoinedFile:
        """Return the file's own output with room for a row group."""
        if own and not self._has_room(own[-1], group.size, len(group.entry)):
            self._close(own[-1])
            own.append(self._opened(plan))
        if not own:
            own.append(self._opened(plan))
        return own[-1]

    def _has_room(self, joined: JoinedFile, size: int, entries: int) -> bool:
        return (
            joined.size + size <= self._form.layout.file_bytes
            and joined.footer_bytes + entries <= _ENTRIES_BYTES
        )

    def _opened(self, plan: CopyPlan) -> JoinedFile:
        staged, output_id = self._names.take()
        return JoinedFile(self._sink, replace(self._form, schema=plan.schema), staged, output_id)

    def _finish_shared(self) -> None:
        joined, place, self._shared = self._shared, self._place, None
        if joined is None or place is None:
            return
        if not joined.groups:  # the only file failed
            self._remove(joined)
            return
        self._close(joined)
        self._done.append(_report(joined, place[0]))

    def _close(self, joined: JoinedFile) -> None:
        joined.finish()
        self._sink.sync(joined.staged)

    def _remove(self, joined: JoinedFile) -> None:
        joined.abandon()
        with contextlib.suppress(Exception):  # the error before matters more
            self._sink.delete(joined.staged)


def _report(joined: JoinedFile, directory: str) -> StagedOutput:
    return StagedOutput(joined.staged, directory, joined.rows, joined.size, joined.output_id)


def _blocks(file: OpenFile, group: RowGroup) -> Iterator[bytes]:
    for start in range(group.start, group.stop, _BLOCK_BYTES):
        yield file.read_range(start, min(group.stop, start + _BLOCK_BYTES))


class RowGroupCopier(CopiedOutputs):
    """The outputs of a task with copied row groups; none unless it has `row_groups: copy`."""

    def __init__(
        self, settings: IngestSettings, sink: Storage, names: StagedNames, form: ParquetFormat
    ) -> None:
        super().__init__(sink, names, form)
        self._rules: CopyRules | None = None
        self._none = CopyPlan("")
        options = settings.format
        if not isinstance(options, ParquetOptions) or options.row_groups != "copy":
            return
        if why := reason_to_decode(settings):
            self._none = CopyPlan(f"all row groups were decoded: {why}")
        else:
            self._rules = CopyRules(form.schema, form.layout.file_bytes, options)

    def plan(self, file: OpenFile) -> CopyPlan:
        """Return the row groups of a file to copy. Raises `FileFailed` as `CopyRules.plan`."""
        return self._none if self._rules is None else self._rules.plan(file)


def reason_to_decode(settings: IngestSettings) -> str:
    """Return why no row group can be copied with these settings; empty if some can. Pure."""
    added, sql, layout = settings.added_columns, settings.sql, settings.layout
    reasons = {
        "transform needs the rows": sql.transform,
        "deduplicate_by needs the rows": sql.deduplicate_by,
        f"rows get {', '.join(added.metadata)}": added.metadata,
        "rows get the columns of path_columns": added.path,
        "rows get the name of their unit or batch": added.unit or added.emitted_batch,
        "sink.sort_by sorts the rows": layout.sort_by,
        "sink.partition_by.column decides the directory of each row": layout.partition_rules,
        "schema.unexpected_fields: capture adds a column": (
            settings.schema.unexpected_fields == "capture"
        ),
    }
    found = next((why for why, applies in reasons.items() if applies), "")
    return found or _checked_column(settings.schema.fields)


def _checked_column(fields: Iterable[FieldSpec]) -> str:
    """Return a reason for a column of which each value is checked."""
    for field in fields:
        if field.source:
            return f"column {field.name!r} has another name in the files"
        if field.type == "json":
            return f"column {field.name!r} is json, and its texts are checked"
        required = next((child.name for child in field.children if not child.nullable), None)
        if required is not None:
            return f"column {field.name!r} has {required!r} in it, which is required"
        if why := _checked_column(field.children):
            return why
    return ""
