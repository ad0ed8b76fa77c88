"""The directory of the table that a source file's rows go to, from its path. Pure.

A table template such as ``date=%Y-%m-%d`` is filled from the components of the
same names in the source path (``date=2024-01-28/hour=14/…`` → ``date=2024-01-28``).
If the source has a template of its own (``%Y/%m/%d``) instead of ``key=value``, it gives the time.
The result has the table's form.

A path without a value, or with one that the template would not write, is an error for that file. A
wrong partition value cannot be removed from a table later.
"""

from __future__ import annotations

import datetime as dt


class PartitionError(ValueError):
    """The path does not say which partition its rows belong to."""


def partition_of(path: str, template: str, source_template: str | None) -> str:
    """Return the table directory for a source path. Raises `PartitionError`."""
    folders = path.split("/")[:-1]
    given = dict(f.split("=", 1) for f in folders if "=" in f)
    wanted = [part.split("=", 1) for part in template.split("/")]
    missing = [key for key, pattern in wanted if key not in given and "%" in pattern]
    if not missing:
        return "/".join(
            f"{key}={_canonical(key, given.get(key, pattern), pattern)}" for key, pattern in wanted
        )
    if source_template is not None:
        depth = source_template.count("/") + 1
        if len(folders) >= depth:
            head = "/".join(folders[:depth])
            moment = _parsed(head, source_template)
            if moment is not None:
                return moment.strftime(template)
    raise PartitionError(
        f"its path has no `{missing[0]}=` component to fill sink.partition_by with;"
        " give sink.partition_by.column, or a partition_filter.prefix_template that fits the path"
    )


def _canonical(key: str, value: str, pattern: str) -> str:
    moment = _parsed(value, pattern)
    if moment is None:
        raise PartitionError(f"partition value {key}={value!r} does not have the form {pattern!r}")
    return value


def _parsed(text: str, pattern: str) -> dt.datetime | None:
    """Return the time in ``text``, or None unless ``pattern`` writes exactly that text."""
    try:
        moment = dt.datetime.strptime(text, pattern).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    return moment if moment.strftime(pattern) == text else None
