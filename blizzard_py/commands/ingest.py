"""``blizzard ingest``: single files, whatever their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command
from blizzard_py.commands.options import SourceChoice, source_options
from blizzard_py.commands.reingest_options import (
    answer,
    assume_missing_option,
    request_options,
)
from blizzard_py.commands.requests import following

if TYPE_CHECKING:
    from blizzard_py.app.reingest import ReingestResult
    from blizzard_py.app.submit import Waits


@command(
    section="Repair",
    examples=(
        "blizzard ingest config.yaml s3://raw/events/date=2024-01-28/late.ndjson.gz --dry-run",
        "blizzard ingest config.yaml ./raw/_hidden/1.txt ./raw/2.ndjson --json | jq .files",
    ),
)
@source_options(required=False)
@click.argument("uris", metavar="URI...", nargs=-1, required=True)
@assume_missing_option
@request_options()
def ingest(
    chosen: SourceChoice,
    uris: tuple[str, ...],
    assume_missing: bool,
    why: str,
    how: Waits | None,
    as_json: bool,
) -> int:
    """Ingest the files at the URIs exactly once, by a request.

    Any file below a source's root is accepted: late or hidden files, other endings, closed
    partitions. Files that polls will ingest anyway are left to them; files whose rows are in the
    table are skipped. The same command again follows its first request. Exit codes: 1 some are
    missing, refused or dead-lettered, 7 no daemon has accepted the request yet; it stays.
    """
    from blizzard_py.app.operations import files_by_source
    from blizzard_py.app.reingest import bring, not_requested
    from blizzard_py.app.submit import RequestOrder

    loaded, names = chosen.load(), (chosen.pipeline, chosen.source)
    options = {"assume_missing": True} if assume_missing else {}
    found: dict[str, ReingestResult] = {}
    with following():
        for where, paths in files_by_source(loaded, uris, names).items():
            order = RequestOrder("reingest", {"files": paths}, options, why)
            found["/".join(where)] = (
                not_requested(paths)
                if any(each.is_interrupted for each in found.values())
                else bring(loaded, where, order, how)
            )
    return answer(found, as_json=as_json)
