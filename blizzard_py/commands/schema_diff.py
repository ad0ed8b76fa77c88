"""The output of ``blizzard schema --diff``: differences, and the YAML that closes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from blizzard_core.text import counted, printable
from blizzard_py.commands.printing import flow_yaml


def print_schema_diff(document: Mapping[str, Any]) -> None:
    """Each pipeline's differences as comments, and fields to add as YAML below them."""
    for pipeline, found in document["pipelines"].items():
        for line in _lines(pipeline, found):
            click.echo(line)


def _lines(pipeline: str, found: Mapping[str, Any]) -> Iterator[str]:
    looked = f"{counted(found['records'], 'record')} of {counted(len(found['files']), 'file')}"
    if not found["records"]:
        yield f"# {pipeline}: no record to compare with ({looked} of {found['source']})"
    elif not found["known"]:
        yield f"# {pipeline}: its columns are not inferred yet; `blizzard schema CONFIG` shows them"
    elif not found["differs"]:
        yield f"# {pipeline}: no difference in {looked} of {found['source']}"
    else:
        yield f"# {pipeline}: {looked} of {found['source']} differ from the columns"
    for each in found["changed"]:
        column, records = _type(each["column"]), _type(each["records"])
        yield f"# changed: {printable(each['path'])!r} is {column}, and records have {records}"
    for path in found["missing"]:
        yield f"# missing: no record has {printable(path)!r}"
    for name, reason in found["unusable"].items():
        yield f"# can be no column: {printable(name)!r}: {printable(reason)}"
    table = found["table"]
    for reason in table.get("refused", ()):
        yield f"# refused by the table: {printable(reason)}"
    for name in table.get("only", ()):
        yield f"# only in the table, null in new rows: {printable(name)!r}"
    for name in table.get("lacks", ()):
        yield f"# not in the table yet: {printable(name)!r}"
    yield from _to_add(found["new"])


def _to_add(new: list[dict[str, Any]]) -> Iterator[str]:
    top = [each for each in new if each["path"] == each["name"]]
    for each in new:
        if each not in top:
            field = flow_yaml({key: value for key, value in each.items() if key != "path"})
            outer = each["path"].removesuffix(f".{each['name']}")
            yield f"# new, to add to `fields` of {printable(outer)!r}: {field}"
    if top:
        yield "# new, to add to the others:"
        yield "fields:"
    for each in top:
        field = flow_yaml({key: value for key, value in each.items() if key != "path"})
        yield f"  - {field}"


def _type(field: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in field.items() if key != "name"}
    return str(rest["type"]) if len(rest) == 1 else flow_yaml(rest)
