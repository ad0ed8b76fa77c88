"""One merge of changes into a large keyed table, beside delta-rs and dlt.

    python -m benchmarks.keyed                    # 20 M rows; the first run makes them
    python -m benchmarks.keyed --rows 1000000

Each contender merges the same changes into a copy of the same table, in a process of its own: CPU
seconds and peak memory of all of it after imports, and the bytes that it wrote. *Recent* changes
hit the newest 2 %, a tenth of all changes are new keys. `id` rises with time, `uid` is random text.
delta-rs runs as it is (`streamed`) and with ``streamed_exec=False``; it keeps newer rows by its
condition. dlt is brought by `uv` beside this environment, and left out where that is impossible.
`cases` are four orders of changes, and what each contender makes of them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)

from benchmarks.keyed_cases import CASES, expected, rows_in, table_of
from blizzard_core.settings.tables import TableAdvanced, TableSettings
from blizzard_core.storage.opening import open_storage
from penguin_py.activity import TableActivity
from penguin_py.delta.table import DeltaLog
from penguin_py.keyed.merge_state import made_of
from penguin_py.keyed.merger import Merger
from penguin_py.settings import KEYED_APP_ID, KeyedTable, Table

_STEP = 1_400_000
# Changes by name: how many, where, and the key.
SHAPES: Mapping[str, tuple[int, bool, str]] = {
    "1 k recent, id": (1_000, True, "id"),
    "1 k recent, uid": (1_000, True, "uid"),
    "1 k anywhere, uid": (1_000, False, "uid"),
    "100 k anywhere, uid": (100_000, False, "uid"),
    "500 k anywhere, uid": (500_000, False, "uid"),
}
CONTENDERS = ("penguin", "delta-rs", "delta-rs streamed", "dlt")
# Not among the locked packages, which its own requirements would hold back.
_DLT = "dlt[deltalake]==1.31.0"
# Of Penguin at 20 M rows: CPU seconds, megabytes.
GOALS: Mapping[str, tuple[float, int]] = {
    "1 k recent, id": (2.0, 350),
    "1 k recent, uid": (5.0, 550),
    "100 k anywhere, uid": (37.4, 600),
    "500 k anywhere, uid": (44.0, 700),
}
_MIX = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def random_text(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Return 32 digits for each number, the same for the same number."""
    one = numbers.astype(np.uint64) * _MIX[0]
    one = (one ^ (one >> np.uint64(29))) * _MIX[1]
    other = (one ^ (one >> np.uint64(31))) * _MIX[2]
    raw = np.stack([one, other], 1).tobytes().hex()
    starts = np.arange(len(numbers) + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(
        len(numbers), pa.py_buffer(starts), pa.py_buffer(raw.encode())
    )


def make_rows(ids: np.ndarray[Any, Any], seq: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Return rows of eight columns."""
    chance = np.random.default_rng(seed)
    count = len(ids)
    status = pa.array(["new", "paid", "sent", "done", "back"])
    return pa.table(
        {
            "id": ids,
            "uid": random_text(ids),
            "seq": seq,
            "updated_at": pa.array(ids * 1000 + 17 * 10**14, pa.timestamp("us", "UTC")),
            "status": status.take(pa.array(chance.integers(0, 5, count))),
            "amount": np.round(chance.random(count) * 1000, 2),
            "qty": chance.integers(0, 100, count, dtype=np.int32),
            "note": random_text(chance.integers(0, 1 << 60, count)),
        }
    )


def settings(place: Path, key: str, deletes: str | None = None) -> KeyedTable:
    """Return the settings of a keyed table in a folder."""
    app = TableAdvanced(app_id=KEYED_APP_ID)
    current = TableSettings(table_uri=str(place / "current"), advanced=app)
    changes = TableSettings(table_uri=str(place / "changes"))
    tables = Table("current", current, {}), Table("changes", changes, {})
    return KeyedTable(*tables, (key,), ("seq",), deletes)


def make_table(place: Path, count: int) -> None:
    """Write a table of so many rows, and its changes without any."""
    empty = make_rows(np.array([], np.int64), np.array([], np.int64), 0)
    write_deltalake(place / "changes", empty)
    made = WriterProperties(compression="ZSTD", max_row_group_size=1 << 17)
    for low in range(0, count, _STEP):
        ids = np.arange(low, min(count, low + _STEP), dtype=np.int64)
        write_deltalake(
            place / "current",
            make_rows(ids, ids, low),
            mode="append",
            target_file_size=512 << 20,
            writer_properties=made,
        )


def mark_merged(place: Path, key: str) -> None:
    """Let the table look as merges leave it: version 0 of the changes is in it."""
    keyed = settings(place, key)
    changes_id = str(DeltaTable(place / "changes").metadata().id)
    table = DeltaTable(place / "current")
    table.alter.set_table_description(made_of(keyed, changes_id))
    document = {"app_id": KEYED_APP_ID, "commit_id": "", "output_ids": [], "files": 0}
    write_deltalake(
        place / "current",
        pa.schema(table.schema().to_arrow()).empty_table(),
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={"penguin": document},
            app_transactions=[Transaction(KEYED_APP_ID, 2)],
        ),
    )


def make_changes(count: int, many: int, *, recent: bool) -> pa.Table:
    """Return changes to a table of ``count`` rows."""
    chance = np.random.default_rng(7)
    new, reach = many // 10, count // 50 if recent else count
    old = chance.choice(reach, many - new, replace=False).astype(np.int64) + count - reach
    ids = np.concatenate([old, np.arange(count, count + new, dtype=np.int64)])
    chance.shuffle(ids)
    return make_rows(ids, ids + 10**9, 8)


def merge_by_penguin(keyed: KeyedTable) -> None:
    """Merge what the change table has."""
    with ThreadPoolExecutor(8) as pool:
        opened = [
            (storage, DeltaLog(table, storage, pool))
            for table in (keyed.changes, keyed.table)
            for storage in [open_storage(table.uri, {})]
        ]
        activity = TableActivity(keyed.name, keyed.table.uri, time.time)
        Merger(keyed, opened[0], opened[1], time.time, activity).merge()


def merge_by_delta_rs(place: Path, key: str, rows: pa.Table, *, streamed: bool) -> None:
    """Merge rows, with the conditions that keep newer ones; make the table if there is none."""
    if not DeltaTable.is_deltatable(str(place / "current")):
        write_deltalake(place / "current", rows)
        return
    merging = DeltaTable(place / "current").merge(
        rows,
        f"t.{key} = s.{key}",
        source_alias="s",
        target_alias="t",
        streamed_exec=streamed,
        writer_properties=WriterProperties(compression="ZSTD"),
    )
    if "deleted" in rows.column_names:
        merging = merging.when_matched_delete("s.deleted and s.seq > t.seq")
    merging.when_matched_update_all("s.seq > t.seq").when_not_matched_insert_all().execute()


def merge_by_dlt(place: Path, key: str, rows: pa.Table) -> None:
    """Merge by the upsert strategy; a table of another becomes the one of its data set."""
    dlt = importlib.import_module("dlt")  # no package of ours
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    target = dlt.destinations.filesystem(place.as_uri())
    state = str(place / "state")
    pipeline = dlt.pipeline("p", destination=target, dataset_name="ds", pipelines_dir=state)
    if DeltaTable.is_deltatable(str(place / "current")) and not (place / "ds").exists():
        pipeline.run([{"a": 1}], table_name="other")
        (place / "current").rename(place / "ds" / "items")
    hints = {"deleted": {"hard_delete": True}, "seq": {"dedup_sort": "desc"}}
    pipeline.run(
        dlt.resource(
            [rows],
            name="items",
            primary_key=key,
            write_disposition={"disposition": "merge", "strategy": "upsert"},
            table_format="delta",
            columns=hints if "deleted" in rows.column_names else None,
        )
    )


def load(contender: str, place: Path, rows: pa.Table) -> None:
    """Let a contender load some changes of a case."""
    if contender == "penguin":
        write_deltalake(place / "changes", rows, mode="append")
        merge_by_penguin(settings(place, "id", "deleted"))
    elif contender == "dlt":
        merge_by_dlt(place, "id", rows)
    else:
        merge_by_delta_rs(place, "id", rows, streamed=contender == "delta-rs streamed")


def python_of(contender: str) -> list[str]:
    """Return the command of the Python that has a contender's package."""
    if contender != "dlt":
        return [sys.executable]
    return [sys.executable, "-m", "uv", "run", "--no-project", "--quiet", "--with", _DLT, "python"]


def peak_mb() -> int:
    """Return the peak memory of this process; that of `getrusage` includes its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) >> 10


def child(contender: str, place: Path, key: str) -> None:
    """Merge once, and print what it took."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    there = set((place / "current").rglob("*.parquet"))
    rows = pa.concat_tables(map(pq.read_table, DeltaTable(place / "changes").file_uris()))
    if contender == "penguin":
        del rows
        merge_by_penguin(settings(place, key))
    elif contender == "dlt":
        merge_by_dlt(place, key, rows)
    else:
        merge_by_delta_rs(place, key, rows, streamed=contender == "delta-rs streamed")
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    now = place / ("ds/items" if contender == "dlt" else "current")
    new = {path.name: path for path in now.rglob("*.parquet")}
    new = {name: path for name, path in new.items() if name not in {old.name for old in there}}
    written = sum(path.stat().st_size for path in new.values()) >> 20
    sys.stdout.write(json.dumps({"cpu": cpu, "mb": peak_mb(), "written": written}))


def measure(contender: str, folder: Path, count: int, shape: str) -> dict[str, float]:
    """Merge into a copy in a process of its own."""
    many, recent, key = SHAPES[shape]
    place = folder / "run"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / str(count), place, copy_function=os.link)
    for entry in place.rglob("_delta_log/*"):  # not shared with the original
        content = entry.read_bytes()
        entry.unlink()
        entry.write_bytes(content)
    mark_merged(place, key)
    changes = make_changes(count, many, recent=recent)
    write_deltalake(place / "changes", changes, mode="append")
    asked = [*python_of(contender), "-m", "benchmarks.keyed"]
    asked += ["--child", contender, str(place), key]
    frugal = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}  # as the daemon does
    environment = {**os.environ, **(frugal if contender == "penguin" else {})}
    found = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment)
    told: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return told


def check_cases(folder: Path, contender: str) -> None:
    """Print which of the cases a contender gets right."""
    for name, loads in CASES.items():
        place = folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            for each in loads:
                load(contender, place, table_of(each))
            found = rows_in(place / ("ds/items" if contender == "dlt" else "current"))
            right = "right" if found == expected(loads) else f"wrong: {found}"
        except Exception as error:  # a contender's own, and part of the answer
            right = f"fails: {str(error).splitlines()[0][:100]}"
        sys.stdout.write(f"{contender:20} {name:45} {right}\n")


def main() -> None:
    """Measure all shapes, and check the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, default=Path(".bench/keyed"))
    parser.add_argument("--child", nargs=3)
    parser.add_argument("--cases")
    options = parser.parse_args()
    if options.child:
        contender, place, key = options.child
        child(contender, Path(place), key)
        return
    folder, count = options.folder.absolute(), options.rows
    if options.cases:
        check_cases(folder, options.cases)
        return
    if not (folder / str(count)).exists():
        make_table(folder / str(count), count)
    has_dlt = not subprocess.run([*python_of("dlt"), "-c", "import dlt"], check=False).returncode
    contenders = [name for name in CONTENDERS if name != "dlt" or has_dlt]
    for shape in SHAPES:
        for contender in contenders:
            took = measure(contender, folder, count, shape)
            goal = GOALS.get(shape) if contender == "penguin" and count == 20_000_000 else None
            text = f", goal {goal[0]} s, {goal[1]} MB" if goal else ""
            sys.stdout.write(
                f"{shape:22} {contender:18} {took['cpu']:7.1f} s  {took['mb']:6,.0f} MB "
                f" {took['written']:5,.0f} MB written{text}\n"
            )
            sys.stdout.flush()
    for contender in contenders:
        asked = [*python_of(contender), "-m", "benchmarks.keyed", "--cases", contender]
        subprocess.run([*asked, "--folder", str(folder)], check=True)


if __name__ == "__main__":
    main()
