"""The limited cost of hostile files: bounded memory, and no other file's commit."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

from blizzard_core.limits import FOOTER_BYTES
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import Entry
from penguin_py.intake.quarantine import Quarantine
from penguin_py.model import Rejection
from tests.support.flat_settings import nested
from tests.support.table_harness import parquet
from tests.support.thrift_footer import column, footer, group, parquet_file, root

# A daemon of its own: idle first, then the files come, and it works them all off.
DAEMON = """
import json, os, sys, threading
from pathlib import Path
from blizzard_core.settings.load import load_config
from penguin_py.app import build

def megabytes(kind):
    # Not ru_maxrss, which a process takes over from the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) / 1024

def work():
    while worker.cycle(stop):
        pass

table, files, stop = Path(sys.argv[2]), Path(sys.argv[3]), threading.Event()
with build(load_config(Path(sys.argv[1]))) as workers:
    [worker] = workers
    for _ in range(3):
        work()
    idle = megabytes("VmRSS:")
    for file in sorted(files.iterdir()):
        file.rename(table / file.name)
    work()
    after = megabytes("VmHWM:")
    print(json.dumps([idle, after]))
"""


def wide(columns: int, groups: int, first: str = "ID") -> bytes:
    """A file that claims so many columns in so many row groups, of a row each.

    The first is the table's own but for its case, so that nothing but the plan refuses it.
    """
    names = [first, *(f"c{number}" for number in range(1, columns))]
    one = group([[name] for name in names], 1)
    return parquet_file(footer([root(columns), *map(column, names)], groups, [one] * groups))


def longest(columns: int) -> bytes:
    """One whose footer is nearly as long as one may be."""
    one = len(wide(columns, 2)) - len(wide(columns, 1))
    return wide(columns, (FOOTER_BYTES - len(wide(columns, 1))) // one)


def with_false_counts(rows: int, counts: list[int]) -> bytes:
    return parquet_file(footer([root(1), column("id")], rows, [group(["id"], n) for n in counts]))


def hostile() -> dict[str, tuple[bytes, str]]:
    """Files by name, with what the record has to say of each."""
    found = {
        "rows-negative": (with_false_counts(-5, [-5]), "impossible row count"),
        "rows-endless": (with_false_counts(4 * 10**18, [4 * 10**18]), "impossible row count"),
        "rows-other": (with_false_counts(7, [3]), "its row groups have 3"),
    }
    kinds = {
        "columns": (wide(5_000, 1, "c0"), "max_new_columns"),
        "groups": (longest(1), "only in case"),
        "wide": (longest(200), "only in case"),
        "widest": (longest(9_000), "only in case"),
    }
    for name, told in kinds.items():
        found |= {f"{name}-{copy}": told for copy in range(2)}
    # Short enough to be read at the same time, and many; half of them end before their data.
    short = wide(1, 1_900)
    for copy in range(0, 300, 2):
        found[f"short-{copy}"] = (short, "only in case")
        found[f"short-{copy + 1}"] = (short[:4] + short[68:], "points past the end")
    return found


@pytest.mark.promise("G-100")
def test_hostile_files_cost_bounded_memory_and_delay_nobody(tmp_path: Path) -> None:
    table, files = tmp_path / "table", tmp_path / "files"
    for folder in (table, files):
        folder.mkdir()
    (table / "a.parquet").write_bytes(parquet({"id": [1]}))
    bad = hostile()
    for name, (data, _) in bad.items():
        (files / f"{name}.parquet").write_bytes(data)
    with (files / "sparse.parquet").open("wb") as sparse:
        sparse.write(b"PAR1")
        sparse.truncate(1 << 30)
        sparse.seek((1 << 30) - 8)
        sparse.write(struct.pack("<I", (1 << 30) - 20) + b"PAR1")
    (files / "z.parquet").write_bytes(parquet({"id": [2]}))
    record = Quarantine(open_storage(str(table), {}), "events")
    record.keep([Rejection(Entry(f"{n}", 1, 1.0), "read", "is junk") for n in range(100_000)], 1e9)
    config = tmp_path / "config.yaml"
    block = {"table_uri": str(table), "own_prefixes": [""], "reconcile_interval": 0}
    config.write_text(yaml.safe_dump(nested(Config, {"tables": {"events": block}})))

    done = subprocess.run(
        [sys.executable, "-c", DAEMON, str(config), str(table), str(files)],
        check=True,
        capture_output=True,
        text=True,
    )
    idle, peak = json.loads(done.stdout.splitlines()[-1])
    assert peak - idle < 200, (idle, peak)
    rows: Any = pa.table(DeltaTable(table).to_pyarrow_dataset().to_table())
    assert sorted(rows["id"].to_pylist()) == [1, 2]
    told = record.records()
    assert len(told) == 100_000 + len(bad) + 1
    assert "has a footer of" in told["sparse.parquet"].error
    for name, (_, why) in bad.items():
        assert why in told[f"{name}.parquet"].error, (name, told[f"{name}.parquet"].error)
