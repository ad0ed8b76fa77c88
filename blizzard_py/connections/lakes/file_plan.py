"""The files of a window, divided among tasks, and their form in a task's spec. Pure.

The checkpoint keeps specs, so a file is a short list there, and common values are stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blizzard_core.errors import SourceError
from blizzard_py.connections.lakes.locations import FileName
from blizzard_py.connections.lakes.window import RowWindow, parsed
from blizzard_py.connections.placeholders import LAKE, Values, in_sql
from blizzard_py.connections.protocol import WindowSplit
from blizzard_py.reading import ReadTask
from blizzard_py.slices.notation import deserialize, serialize

# How much one task reads unless the split says otherwise.
TASK_BYTES = 512 << 20
MAX_TASKS = 64


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file that a task reads, and how to recognise a replaced one.

    ``modified`` is 0 if only the size is known. ``values`` are columns that are not in the file:
    partition columns, or those of the change feed. ``has_bad``: invalid rows of the file belong to
    this window.
    """

    name: FileName
    size: int
    modified: float = 0.0
    values: Mapping[str, Any] = field(default_factory=dict)
    has_bad: bool = True


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The plan of a reading: files, and the rows of ``window`` that ``filter`` keeps.

    Without a window, or with an empty filter, it has all rows. ``columns`` are the table's, for a
    task without declared fields. ``extra`` are further values that the format's reader needs.
    """

    files: Sequence[PlannedFile]
    columns: Sequence[str]
    window: RowWindow | None = None
    filter: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def tasks_of(plan: FilePlan, split: WindowSplit, what: str) -> list[ReadTask]:
    """Return the plan's tasks, of about as many bytes each; ``what`` describes them for people."""
    groups = _grouped(plan.files, split)
    window = "" if plan.window is None else plan.window.as_sql()
    condition = " AND ".join(f"({part})" for part in (window, plan.filter) if part)
    return [
        ReadTask(
            name=str(number),
            where=_describe(what, files, condition),
            spec=_spec(plan, files),
            size=sum(file.size for file in files),
        )
        for number, files in enumerate(groups)
    ]


def unit_plans(
    plan: FilePlan,
    units: Sequence[Values],
    what: str,
    files_for: Callable[[str], Sequence[PlannedFile]] | None = None,
) -> list[ReadTask | SourceError]:
    """Return a task for each unit: the plan, with the unit's values in its filter.

    ``files_for`` returns the files that a filter must read; without it all files are read.
    """

    def task(values: Values) -> ReadTask | SourceError:
        try:
            condition = in_sql(plan.filter, values, LAKE)
            files = plan.files if files_for is None else files_for(condition)
            chosen = replace(plan, filter=condition, files=files)
            described = _describe(what, files, condition) if files else f"{what}: no files"
            return ReadTask("0", described, _spec(chosen, files), sum(file.size for file in files))
        except SourceError as error:
            return error

    return [task(values) for values in units]


def _grouped(files: Sequence[PlannedFile], split: WindowSplit) -> list[list[PlannedFile]]:
    """Return files in order, in groups of nearly equal bytes."""
    if not files:
        return []
    total = sum(file.size for file in files)
    wanted = split.tasks or min(MAX_TASKS, -(-total // TASK_BYTES))
    count = max(1, min(wanted, len(files)))
    groups: list[list[PlannedFile]] = [[] for _ in range(count)]
    before = 0
    for place, file in enumerate(files):
        # The middle of a file decides its group; without bytes the files are counted.
        share = (before + file.size / 2) / total if total else place / len(files)
        groups[min(count - 1, int(share * count))].append(file)
        before += file.size
    return [group for group in groups if group]


def _describe(what: str, files: Sequence[PlannedFile], condition: str) -> str:
    first = files[0].name.path
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    return f"{what}: {first}{more}" + (f" WHERE {condition}" if condition else "")


def _spec(plan: FilePlan, files: Sequence[PlannedFile]) -> dict[str, Any]:
    roots = sorted({file.name.root for file in files})
    return {
        "roots": roots,
        "files": [_packed(file, roots) for file in files],
        "columns": list(plan.columns),
        "window": None if plan.window is None else plan.window.document(),
        "filter": plan.filter,
        **plan.extra,
    }


def _packed(file: PlannedFile, roots: Sequence[str]) -> list[Any]:
    where = [roots.index(file.name.root), file.name.path]
    packed = [*where, file.size, file.modified, int(file.has_bad)]
    return [*packed, serialize(dict(file.values))] if file.values else packed


def files_of(spec: Mapping[str, Any]) -> Iterable[PlannedFile]:
    """Return the files of a task's spec, in order."""
    for root, path, size, modified, has_bad, *values in spec["files"]:
        shared_values = deserialize(values[0], strict=True) if values else {}
        name = FileName(spec["roots"][root], path)
        yield PlannedFile(name, size, modified, shared_values, bool(has_bad))


def window_of(spec: Mapping[str, Any]) -> RowWindow | None:
    """Return the window of a task's spec."""
    document = spec["window"]
    return None if document is None else parsed(document)
