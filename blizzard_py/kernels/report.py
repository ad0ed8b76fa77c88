"""Reports of tasks to the driver, and the job's result made from them. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from blizzard_core.limits import UNEXPECTED_FIELDS
from blizzard_core.storage.protocol import order_key
from blizzard_py.job import (
    FieldSpec,
    FinishedFile,
    IngestResult,
    StagedBadRecords,
    StagedOutput,
    UnexpectedField,
)
from blizzard_py.reading import ReadMarks


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The report of a task attempt; it counts only if the driver receives it.

    ``files`` has every file of the task in order.
    """

    task: int
    outputs: tuple[StagedOutput, ...]
    files: tuple[FinishedFile, ...]
    letters: StagedBadRecords | None = None
    marks: tuple[ReadMarks, ...] = ()
    unexpected: tuple[UnexpectedField, ...] = ()

    def to_json(self) -> str:
        """Return one line of ASCII."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        """Return the report of `to_json`."""
        data = json.loads(text)
        letters = data["letters"]
        return cls(
            task=data["task"],
            outputs=tuple(StagedOutput(**item) for item in data["outputs"]),
            files=tuple(FinishedFile(**item) for item in data["files"]),
            letters=letters
            and StagedBadRecords(letters["staged"], tuple((p, n) for p, n in letters["files"])),
            marks=tuple(ReadMarks(**item) for item in data["marks"]),
            unexpected=tuple(
                UnexpectedField(
                    item["name"],
                    item["path"],
                    tuple(item["values"]),
                    tuple(each and _spec(each) for each in item["types"]),
                )
                for item in data["unexpected"]
            ),
        )


def _spec(document: dict[str, Any]) -> FieldSpec:
    return FieldSpec(**{**document, "children": tuple(map(_spec, document["children"]))})


def together(reports: Sequence[TaskReport]) -> list[TaskReport]:
    """Return the reports of one item's slices for the job's result: the item appears once.

    Letters stay with their slice; the last report has the item with all its rows.
    """
    files = [file for report in reports for file in report.files]
    whole = dataclasses.replace(
        files[0],
        rows=sum(file.rows for file in files),
        bytes_read=sum(file.bytes_read for file in files),
        bad_rows=sum(file.bad_rows for file in files),
        error=next((file.error for file in files if file.error), ""),
    )
    *others, last = reports
    return [
        *(dataclasses.replace(report, files=()) for report in others),
        dataclasses.replace(last, files=(whole,)),
    ]


def merged(reports: Iterable[TaskReport]) -> IngestResult:
    """Return the job's result; outputs in order of task and index, files in path order."""
    ordered = sorted(reports, key=lambda report: report.task)
    files = (file for report in ordered for file in report.files)
    return IngestResult(
        outputs=tuple(output for report in ordered for output in report.outputs),
        files=tuple(sorted(files, key=lambda file: order_key(file.path))),
        tasks=len(ordered),
        letters=tuple(report.letters for report in ordered if report.letters is not None),
        marks=tuple(mark for report in ordered for mark in report.marks),
        unexpected=_once(field for report in ordered for field in report.unexpected),
    )


def _once(fields: Iterable[UnexpectedField]) -> tuple[UnexpectedField, ...]:
    """Return each field once, with the values and types from all tasks."""
    found: dict[str, UnexpectedField] = {}
    for field in fields:
        known = found.get(field.name)
        if known is not None:
            found[field.name] = dataclasses.replace(
                known,
                values=known.values + field.values,
                types=tuple(dict.fromkeys(known.types + field.types)),
            )
        elif len(found) < UNEXPECTED_FIELDS:
            found[field.name] = field
    return tuple(found.values())
