"""Output of ``plan``, ``status`` and ``schema`` for people, from the documents of ``--json``.

Control characters in values from a store are escaped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import yaml

from blizzard_core.cli import Trouble, print_error, print_problems, print_table, rows_waiting
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.requests.progress import counts_text
from blizzard_py.slices.notation import short_text
from blizzard_py.state.stream_state import moment

# Shares of rows for which `status` shows the lateness, to help to choose a delay.
_SHARES = (0.99, 0.999)

_ORIGINS = {
    "declared": "as declared in the configuration",
    "inferred": "as inferred and kept beside the checkpoint",
    "added": "as declared, with the columns that new fields have added (evolve: add)",
    "sample": "as it would be inferred now",
    "unknown": "nothing to infer the rest from yet: the sources have no new files",
}


def sources_in(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sources of a document of all pipelines, each with its name and its pipeline's."""
    for pipeline, block in document["pipelines"].items():
        for source, found in block["sources"].items():
            yield f"{pipeline}/{source}", found


def print_plan(document: dict[str, Any]) -> None:
    """Print a table of file sources, then each query source with window and tasks."""
    sources = list(sources_in(document))
    files = [(name, found) for name, found in sources if "kind" not in found]
    if files or not sources:
        _print_files(files)
    for name, found in sources:
        if "units" in found:
            _print_units(name, found)
        elif "kind" in found:
            _print_window(name, found)


def _print_window(name: str, found: dict[str, Any]) -> None:
    """Print the query of a table or an API, line by line."""
    bound = found["bound"]
    held = f", held by {bound['held_by']}" if bound["held_by"] else ""
    click.echo(printable(f"{name}: {found['state']}, watermark {short_text(found['watermark'])}"))
    click.echo(printable(f"  bound    {bound['kind']} {short_text(bound['value'])}{held}"))
    if found["window"] is None:
        click.echo("  nothing to read")
    for task in found["tasks"]:
        click.echo(printable(f"  task {task['name']}   {task['where']}"))
    if found["window"] is not None and not found["tasks"]:
        click.echo(printable(f"  would be {found['query'] or short_text(found['request'])}"))
    for warning in found["warnings"]:
        click.echo(printable(f"  note     {warning}"))


def _print_units(name: str, found: dict[str, Any]) -> None:
    """Print a source of work units: the units to read, and counts of the others."""
    counts = ", ".join(f"{count:,} {word}" for word, count in found["counts"].items())
    span = found["range"]
    click.echo(printable(f"{name}: {found['state']}, {span['from']} to {span['to']}: {counts}"))
    for unit in found["units"]:
        if unit["execute"]:
            line = f"  {unit['name']}   {unit['from']} to {unit['to']}   {unit['reason']}"
            click.echo(printable(line))
    for warning in found["warnings"]:
        click.echo(printable(f"  note     {warning}"))


def _print_files(sources: Sequence[tuple[str, dict[str, Any]]]) -> None:
    print_table(
        ("source", "state", "watermark", "new files", "bytes", "LISTs", "keys"),
        (
            [
                name,
                found["state"],
                found["watermark"],
                f"{len(found['files']):,}",
                f"{sum(f['size'] for f in found['files']):,}",
                _requests(found),
                f"{found['keys_listed']:,}",
            ]
            for name, found in sources
        ),
    )
    for name, found in sources:
        for note in found["notes"]:
            click.echo(printable(f"{name}: {note}"))
        if found["list_budget"] is not None:
            # Few sources have one.
            from blizzard_py.sources.files.list_budget import budget_lines

            headline, *lines = budget_lines(found["list_budget"])
            click.echo(printable(f"{name}: {headline}"))
            for line in lines:
                click.echo(printable(f"  {line}"))


def _requests(found: Mapping[str, Any]) -> str:
    """Return what the look cost: a local disk is asked for directories, a store for pages."""
    directories = found["directories_read"]
    return f"{found['list_requests']:,}" if directories is None else f"{directories:,} dirs"


def print_schema(document: dict[str, Any]) -> None:
    """Print YAML for ``schema``, with the origin of columns as comments."""
    for pipeline, found in document["pipelines"].items():
        click.echo(f"# {pipeline}: {_ORIGINS[found['origin']]}")
        if found["sample"]:
            sample = found["sample"]
            click.echo(
                f"# from {counted(sample['records'], 'record')} of"
                f" {counted(len(sample['files']), 'file')},"
                f" {counted(sample['skipped_lines'], 'line')} skipped"
            )
        for name, reason in found["left_out"].items():
            click.echo(f"# left out: {printable(name)!r}: {printable(reason)}")
        for name, kind in found["path_columns"].items():
            click.echo(f"# from the path: {flow_yaml({name: kind})}")
        click.echo("fields:" if found["fields"] else "fields: []")
        for field in found["fields"]:
            click.echo(f"  - {flow_yaml(field)}")


def flow_yaml(value: Any) -> str:
    """Return a value as one line of YAML, with control characters escaped."""
    for readable in (True, False):
        text = yaml.safe_dump(
            value,
            default_flow_style=True,
            sort_keys=False,
            allow_unicode=readable,
            width=float("inf"),
        ).strip()
        if text.isprintable():
            break
    return text


def print_status(document: dict[str, Any]) -> None:
    """Print a row for each source; unknown lags are shown as errors below."""
    print_table(
        (
            "source",
            "state",
            "watermark",
            "lag",
            "waiting",
            "dead letters",
            "updated (UTC)",
            "in flight",
            "files",
            "rows",
            "uncommitted",
        ),
        (_status_row(name, found) for name, found in sources_in(document)),
    )
    _print_replicas(document.get("replicas"))
    print_problems({name: found["problems"] for name, found in sources_in(document)})
    for pipeline, block in document["pipelines"].items():
        if block.get("event_time"):
            _print_event_time(pipeline, block["event_time"])
        for source, found in block["sources"].items():
            if found.get("event_time"):
                _print_event_time(f"{pipeline}/{source}", found["event_time"])
            if (error := found["last_error"]) is not None:
                print_error(f"{pipeline}/{source}: {_failed(error)}")
            if found["lag"]["error"]:
                print_error(f"{pipeline}/{source}: lag is not known: {found['lag']['error']}")
            for note in (*_not_read(found["lag"]), *found.get("notes", ())):
                click.echo(printable(f"{pipeline}/{source}: {note}"))
            for request in found["requests"]:
                click.echo(printable(f"{pipeline}/{source}: {_request(request)}"))
            if found["refused"]["files"]:
                click.echo(printable(_refused(f"{pipeline}/{source}", found["refused"])))
                click.echo(f"  {found['refused']['remedy']}")


def _print_replicas(found: Sequence[Mapping[str, Any]] | None) -> None:
    if found is not None:
        print_table(("replica", "renewed", "configuration", "sources"), map(_replica, found))


def _replica(found: Mapping[str, Any]) -> tuple[str, ...]:
    renewed = f"{found['renewed_secs']:.0f} s ago"
    shown = renewed if found["alive"] else f"{renewed}: dead"
    return found["name"], shown, found["config"], ", ".join(found["sources"]) or "none, stands by"


def _request(found: Mapping[str, Any]) -> str:
    reason = f": {found['reason']}" if found["reason"] else ""
    what = f"{found['kind'] or 'one that cannot be read'}, by {found['by'] or 'unknown'}"
    return f"{request_progress(found, what)}{reason}"


def request_progress(found: Mapping[str, Any], what: str = "") -> str:
    """Return the state of an open request in a line, and how far it has come."""
    name = f"request {found['id']} ({what})" if what else f"request {found['id']}"
    counts = counts_text(found["counts"])
    return f"{name} is {found['state']}{f' ({counts})' if counts else ''}"


def _failed(error: Mapping[str, Any]) -> str:
    times = f" ({error['times']:,} in a row)" if error["times"] > 1 else ""
    return f"failed at {in_utc(error['at'])} UTC{times}: {error['kind']}: {error['error']}"


def _print_event_time(name: str, event_time: Mapping[str, Any]) -> None:
    """Print a line for the watermark, the last batch and each operator."""
    click.echo(printable(_event_time(name, event_time)))
    times = event_time["history"][-1]["times"] if event_time["history"] else None
    if times is not None:
        click.echo(
            f"  last batch: {counted(times['count'], 'row')} from {moment(times['min_ms'])} to"
            f" {moment(times['max_ms'])}, average {moment(round(times['avg_ms']))}"
        )
    rows = sum(bucket["rows"] for bucket in event_time["behind"])
    for share in _SHARES if rows else ():
        click.echo(f"  {share:.1%} of rows: {_within(event_time['behind'], share * rows)}")
    for each in event_time.get("operators", ()):
        click.echo(
            f"  {printable(each['name'])}: {counted(each['state_rows'], 'row')} and"
            f" {each['state_bytes']:,} bytes of state; last batch:"
            f" {each['updated_rows']:,} updated, {each['removed_rows']:,} removed,"
            f" {each['dropped_rows']:,} dropped as late"
        )


def _within(buckets: Sequence[Mapping[str, Any]], rows: float) -> str:
    """Return how far behind so many of the rows are at most, to the next bucket."""
    below = 0
    for bucket in buckets:
        below += bucket["rows"]
        if below >= rows and bucket["up_to_secs"] is not None:
            secs = bucket["up_to_secs"]
            return f"at most {dt.timedelta(seconds=secs)} behind the newest of earlier batches"
    return f"up to more than {dt.timedelta(seconds=buckets[-2]['up_to_secs'])} behind"


def _event_time(name: str, event_time: Mapping[str, Any]) -> str:
    """Return a line on a query, or on a watermark that is only reported."""
    out_of_time = [
        counted(event_time[key], f"{word} row")
        for key, word in (("late_rows", "late"), ("ahead_rows", "early"))
        if event_time[key]
    ]
    state = (
        [f"{counted(event_time['state_rows'], 'row')} of state"]
        if "state_rows" in event_time
        else []
    )
    return ", ".join(
        [
            f"{name}: event time: watermark {event_time['watermark'] or '-'}",
            f"newest row {moment(event_time['max_event_time_ms']) or '-'}",
            *state,
            *out_of_time,
        ]
    )


def _refused(name: str, refused: Mapping[str, Any]) -> str:
    newest = refused["outputs"][0]
    files, rows = (
        counted(refused[key], word) for key, word in (("files", "file"), ("rows", "row"))
    )
    return (
        f"{name}: Penguin refused {files} with {rows}, newest {newest['path']}: {newest['error']}"
    )


def _not_read(lag: Mapping[str, Any]) -> Iterator[str]:
    if found := lag.get("ignored"):
        files = counted(found["files"], "file")
        yield f"{files} ignored, such as {found['first']}: {found['reason']}"
    if (skipped := lag.get("apart")) and skipped["files"]:
        yield (
            f"{counted(skipped['files'], 'file')} skipped, such as {skipped['first']}: partitions"
            " further ahead than max_ahead, or odd beyond max_tracked_partitions, are not read;"
            " `blizzard ingest` takes the files"
        )


def _waiting(lag: Mapping[str, Any]) -> str | None:
    if lag["files"] is None:
        return None
    skipped = f" (+{lag['apart']['files']:,} skipped)" if lag["apart"]["files"] else ""
    return f"{lag['files']:,}{'' if lag['complete'] else '+'}{skipped}"


def _trouble(text: str, *, bad: bool) -> str:
    return Trouble(text) if bad else text


def _status_row(name: str, found: dict[str, Any]) -> list[str | None]:
    updated, lag, dead, totals = (
        found[key] for key in ("last_update_ts", "lag", "dead_letters", "totals")
    )
    return [
        name,
        found["state"],
        short_text(found["watermark"])
        if "kind" in found and "units" not in found
        else found["watermark"],
        None if lag["secs"] is None else f"{dt.timedelta(seconds=round(lag['secs']))}",
        _waiting(lag),
        _trouble(
            f"{dead['letters']:,}{'' if dead['complete'] else '+'}", bad=bool(dead["letters"])
        ),
        in_utc(updated) if updated else None,
        ", ".join(batch["phase"] for batch in found["in_flight"]),
        f"{totals['files']:,}"
        + (f" (+{totals['quarantined']:,} quarantined)" if totals["quarantined"] else ""),
        f"{totals['rows']:,}" + (f" (+{totals['bad_rows']:,} bad)" if totals["bad_rows"] else ""),
        rows_waiting(found["uncommitted"]),
    ]


def print_schema_diff(document: Mapping[str, Any]) -> None:
    """Each pipeline's differences as comments, and fields to add as YAML below them."""
    for pipeline, found in document["pipelines"].items():
        for line in _lines(pipeline, found):
            click.echo(line)


def _lines(pipeline: str, found: Mapping[str, Any]) -> Iterator[str]:
    looked = f"{counted(found['records'], 'record')} of {counted(len(found['files']), 'file')}"
    if not found["records"]:
        why = f": {found['problem']}" if found["problem"] else ""
        yield f"# {pipeline}: no record to compare with ({looked} of {found['source']}){why}"
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
    top = [each for each in new if each["path"] == each.get("from", each["name"])]
    for each in new:
        if each not in top:
            field = flow_yaml({key: value for key, value in each.items() if key != "path"})
            outer = each["path"].removesuffix(f".{each.get('from', each['name'])}")
            yield f"# new, to add to `fields` of {printable(outer)!r}: {field}"
    if top:
        yield "# new, to add to the others:"
        yield "fields:"
    for each in top:
        field = flow_yaml({key: value for key, value in each.items() if key != "path"})
        yield f"  - {field}"


def _type(field: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in field.items() if key not in ("name", "from")}
    return str(rest["type"]) if len(rest) == 1 else flow_yaml(rest)
