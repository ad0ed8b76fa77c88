"""``blizzard clean``: a preview of the cleaning of source files, and copies back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command, json_option, print_json
from blizzard_core.text import counted, printable
from blizzard_py.commands.options import SourceChoice, print_paths, source_options

if TYPE_CHECKING:
    from blizzard_py.app.cleaning import RestoredFile
    from blizzard_py.cleaning.eligible import CleanableFile

# So many paths are printed; --json has all.
_SHOWN = 20


@command(
    section="Repair",
    examples=(
        "blizzard clean config.yaml --dry-run",
        "blizzard clean config.yaml --restore --from date=2024-01-28 --to date=2024-01-28",
    ),
)
@source_options(required=False)
@click.option("--dry-run", is_flag=True, help="Show the files that the daemon may clean now.")
@click.option("--restore", "restores", is_flag=True, help="Copy archived files back.")
@click.option("--from", "first", default="", metavar="PREFIX", help="First file or partition.")
@click.option("--to", "last", default="", metavar="PREFIX", help="Last file or partition.")
@json_option
def clean(
    chosen: SourceChoice,
    dry_run: bool,
    restores: bool,
    first: str,
    last: str,
    as_json: bool,
) -> int:
    """Show what `clean` of a source would remove or tag, or copy archived files back.

    The daemon does the cleaning; this command touches nothing. Files that come back are not
    ingested again, since their names are processed: `blizzard backfill --again` or `--replace` does
    that. Exit codes: 6 a file was not copied back, 1 a store cannot be read.
    """
    from blizzard_core.errors import DIFFERS
    from blizzard_py.app.cleaning import cleaned_sources, preview, restore

    if dry_run == restores:
        raise click.UsageError("give --dry-run or --restore; the daemon itself cleans the files")
    if restores and not (first or last):
        raise click.UsageError("--restore needs --from or --to")
    parts = cleaned_sources(chosen.load(), chosen.pipeline, chosen.source)
    if dry_run:
        _show({each.name: preview(each) for each in parts}, as_json=as_json)
        return 0
    restored = {each.name: list(restore(each, first, last)) for each in parts}
    _show_restored(restored, as_json=as_json)
    return DIFFERS if any(file.problem for files in restored.values() for file in files) else 0


def _show(chosen: Mapping[str, Sequence[CleanableFile]], *, as_json: bool) -> None:
    if as_json:
        sources = [
            {"source": name, "files": [{"path": f.path, "size": f.size} for f in files]}
            for name, files in chosen.items()
        ]
        print_json({"sources": sources})
        return
    for name, files in chosen.items():
        size = sum(file.size for file in files)
        click.echo(f"{printable(name)}: {counted(len(files), 'file')}, {size:,} bytes")
        print_paths([file.path for file in files], _SHOWN)


def _show_restored(restored: Mapping[str, Sequence[RestoredFile]], *, as_json: bool) -> None:
    if as_json:
        sources = [
            {"source": n, "files": [{"path": f.path, "problem": f.problem or None} for f in files]}
            for n, files in restored.items()
        ]
        print_json({"sources": sources})
        return
    for name, files in restored.items():
        done = [each.path for each in files if not each.problem]
        click.echo(f"{printable(name)}: {counted(len(done), 'file')} copied back")
        print_paths(done, _SHOWN)
        for each in files:
            if each.problem:
                click.echo(f"not copied back: {printable(each.path)}: {each.problem}", err=True)
