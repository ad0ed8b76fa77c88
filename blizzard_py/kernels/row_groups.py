"""Copying of row groups in a task, and the settings that need decoded rows instead."""

from __future__ import annotations

from collections.abc import Iterable

from blizzard_core.settings.formats import ParquetOptions
from blizzard_core.storage.protocol import Storage
from blizzard_py.formats.columnar.copying import CopyPlan, CopyRules
from blizzard_py.formats.protocol import OpenFile
from blizzard_py.job import FieldSpec, IngestSettings
from blizzard_py.kernels.write.copied_outputs import CopiedOutputs
from blizzard_py.kernels.write.parquet_file import ParquetFormat
from blizzard_py.kernels.write.rolling_outputs import StagedNames


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
            self._rules = CopyRules(form.schema, form.file_bytes, options)

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
