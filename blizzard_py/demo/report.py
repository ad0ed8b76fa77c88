"""The end of the demo: one column a round, then the table read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

# Facts of the sample, see blizzard_py/demo/data/README.md.
EXPECTED = {"rows": 39_244, "sum(added)": 9_385_573, "sum(delta)": 8_991_275}


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one round, and the daemons' ``status`` after it.

    ``table_files`` and ``table_rows`` are the whole table's, read from the Delta log.
    """

    files: int
    rows: int
    blizzard_secs: float
    penguin_secs: float
    source: dict[str, Any]
    table: dict[str, Any]
    table_files: int
    table_rows: int


def table_size(table: Path) -> tuple[int, int]:
    """Parquet files and rows of a Delta table, as its log has them."""
    actions = DeltaTable(str(table.absolute())).get_add_actions()
    counts = actions["num_records"].to_pylist()
    return len(counts), sum(counts)


def measure(table: Path) -> dict[str, int]:
    """Read the table back, every file of it, and compute what `EXPECTED` names."""
    # File by file in this thread: the dataset reader's threads may still hold Python
    # objects when the process ends, and then it aborts now and then.
    # Paths of a log are percent-encoded, and so are the URIs that would be given for them, with
    # all that is above the table.
    files = DeltaTable(str(table.absolute())).get_add_actions()["path"].to_pylist()
    parts = [
        pq.ParquetFile(table / unquote(file)).read(["added", "delta"], use_threads=False)
        for file in files
    ]
    data = pa.concat_tables(parts)
    return {
        "rows": data.num_rows,
        "sum(added)": pc.sum(data["added"]).as_py(),
        "sum(delta)": pc.sum(data["delta"]).as_py(),
    }


def show_rounds(console: Console, rounds: Sequence[Round]) -> None:
    """Print the rounds side by side."""
    table = Table(
        title="Wikipedia edits: files → Spark → Parquet → Delta Lake", title_justify="left"
    )
    table.add_column("", style="bold")
    for number in range(1, len(rounds) + 1):
        table.add_column(f"round {number}", justify="left")

    def line(label: str, values: Sequence[str], *, end_section: bool = False) -> None:
        table.add_row(label, *values, end_section=end_section)

    line("files arrived", [f"{r.files:,}" for r in rounds])
    line("rows arrived", [f"{r.rows:,}" for r in rounds], end_section=True)
    line("blizzard run --once", [f"{r.blizzard_secs:.1f} s" for r in rounds])
    totals = [r.source["totals"] for r in rounds]
    line("ingested so far", [f"{t['files']:,} files, {t['rows']:,} rows" for t in totals])
    line("state", [str(r.source["state"]) for r in rounds])
    line("watermark", [short_path(r.source["watermark"]) for r in rounds])
    tracked = [len(r.source["partition_watermarks"]) for r in rounds]
    line("partitions tracked", [f"{count:,}" for count in tracked], end_section=True)
    line("penguin run --once", [f"{r.penguin_secs:.1f} s" for r in rounds])
    line("state", [str(r.table["state"]) for r in rounds])
    line("watermark", [short_path(r.table["watermark"]) for r in rounds])
    line("Delta version", [str(r.table["delta_version"]) for r in rounds])
    line("txn version", [str(r.table["txn_version"]) for r in rounds], end_section=True)
    line("files in the table", [f"{r.table_files:,}" for r in rounds])
    line("rows in the table", [f"{r.table_rows:,}" for r in rounds])
    console.print(table)


def short_path(path: str | None) -> str:
    """Return a path on two lines, with the UUID in its file name cut."""
    if path is None:
        return "-"
    directory, _, name = path.rpartition("/")
    short = name if len(name) <= 24 else f"{name[:19]}..."
    return f"{directory}/\n{short}" if directory else short


def show_check(console: Console, found: dict[str, int]) -> bool:
    """Print the rows read back beside the sample's; return whether they agree."""
    table = Table(title="The table, read back with deltalake", title_justify="left")
    table.add_column("")
    table.add_column("found", justify="right")
    table.add_column("in the sample", justify="right")
    table.add_column("")
    for name, expected in EXPECTED.items():
        same = found[name] == expected
        verdict = "[green]ok[/green]" if same else "[bold red]differs[/bold red]"
        table.add_row(name, f"{found[name]:,}", f"{expected:,}", verdict)
    console.print(table)
    return found == EXPECTED
