"""The ingest benchmark: its goals and its measurements."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import worker_memory
from benchmarks.cpu_time import Watched, watched
from benchmarks.ingest_contenders import (
    BARE,
    BLIZZARD,
    DUCKDB,
    POLARS,
    PYARROW,
    SPARK_JSON,
    contenders,
    table_pool,
)
from benchmarks.ingest_limits import LIMITS
from benchmarks.ingest_report import WANTED, Measured, Turn, goals, report
from benchmarks.ingest_shapes import FULL, Shape, write_shape
from benchmarks.slope import bare_run, daemon_run, slope_report
from blizzard_py.engines.spark.engine import SparkEngine

LARGE = Shape("100 x 20,000 rows", 100, 20_000)
ONE = Shape("1 x 20,000 rows", 1, 20_000)
HUGE = Shape("1 x 9,600,000 rows", 1, 9_600_000, huge=True)


def measured(shape: Shape, bare: float, ours: float, spark: float, mb: float = 100) -> Measured:
    seconds = {BARE: [bare, bare, 99], BLIZZARD: [0, ours, ours], SPARK_JSON: [spark] * 3}
    turns = {name: [Turn(one, 2 * one) for one in each] for name, each in seconds.items()}
    return Measured(shape, 80.0, 420.0, turns, mb)


@pytest.mark.parametrize(
    ("one", "verdicts"),
    [
        (measured(LARGE, 1.0, 1.09, 5.0), [True, True]),
        (measured(LARGE, 1.0, 1.11, 3.2), [False, False]),
        (measured(ONE, 0.03, 0.10, 1), [True]),
        (measured(ONE, 0.03, 0.11, 1), [False]),
        (measured(HUGE, 1, 9, 9, mb=350), [True]),
        (measured(HUGE, 1, 1, 9, mb=351), [False]),
        (measured(Shape("20 x 5,000 rows", 20, 5000), 1, 9, 1), []),
    ],
)
def test_goals_are_met_or_missed(one: Measured, verdicts: list[bool]) -> None:
    assert [goal.met for goal in goals([one])] == verdicts


def test_goals_name_existing_shapes() -> None:
    assert WANTED.keys() <= {shape.name for shape in FULL}


def test_the_report_is_markdown_with_medians_and_ratios() -> None:
    text = report([measured(LARGE, 1.0, 1.5, 6.75), measured(ONE, 0.03, 0.06, 1)])
    assert "| blizzard on Spark | 1.5 | 1,333,333 | 1.50 | 0 | 0 1.5 1.5 |" in text
    assert "| 100 x 20,000 rows: at most 1.10 x bare processes | 1.50 x | missed |" in text
    assert "4.50 times | met |" in text
    assert "| 60 ms | met |" in text


def test_program_reports_its_contenders(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.ingest", "--quick", "--only", "1 x 20,000"),
            *("--against", "bare", "duckdb", "limit", "--csv", str(tmp_path / "rounds.csv")),
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    table = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in table] == [
        "",
        BARE,
        PYARROW,
        DUCKDB,
        *LIMITS,
        "goal",
    ]
    head, *rounds = (tmp_path / "rounds.csv").read_text().splitlines()
    assert head == "shape,contender,round,seconds,cpu_seconds"
    names = [line.rpartition('","')[2].partition('"')[0] for line in rounds]
    assert names == [BARE, PYARROW, DUCKDB, *LIMITS]
    assert "**1 x 20,000 rows**" in done.stdout


@pytest.mark.parametrize("edits", [False, True])
def test_shapes_hold_the_same_events_however_they_are_cut(tmp_path: Path, edits: bool) -> None:
    rows = {}
    with ThreadPoolExecutor(2) as pool:
        for name, files, each in (("a", 3, 100), ("b", 1, 300), ("c", 100, 3)):
            shape = Shape(name, files, each, edits=edits)
            raw = write_shape(shape, tmp_path / shape.name, pool)
            made = sorted((tmp_path / shape.name).iterdir())
            assert len(made) == shape.files
            data = b"".join(gzip.decompress(file.read_bytes()) for file in made)
            assert len(data) == raw
            rows[shape.name] = data
    assert rows["a"] == rows["b"] == rows["c"]
    events = [json.loads(line) for line in rows["a"].splitlines()]
    assert len(events) == 300
    # The schema lacks one field of the clicks, as it does in most tables.
    assert {f.name for f in shape.fields} | (set() if edits else {"session"}) == set(events[0])


def test_sparkless_contenders_write_the_same_rows(tmp_path: Path) -> None:
    shape = Shape("small", 4, 500)
    with ThreadPoolExecutor(1) as pool, table_pool(1) as tables:
        write_shape(shape, tmp_path / "source", pool)
        everyone = contenders(SparkEngine("local[1]"), pool, pool, tables, 1, shape.fields)
        found = {}
        for name in (BARE, DUCKDB, POLARS):
            sink = tmp_path / name.replace(" ", "-")
            assert everyone[name](tmp_path / "source", sink) == shape.total
            [file] = sink.rglob("*.parquet")
            table = pq.read_table(file, columns=["id", "duration", "country"])
            found[name] = table.sort_by("id").to_pylist()
            codec = pq.read_metadata(file).row_group(0).column(0).compression
            assert codec == "SNAPPY"
    assert found[BARE] == found[DUCKDB] == found[POLARS]


def test_batch_cost_is_the_difference_of_two_runs() -> None:
    found = {
        "short": [Turn(9, 20), Turn(10, 21), Turn(30, 22)],
        "long": [Turn(16, 26), Turn(15, 27), Turn(17, 28)],
        "bare": [Turn(4, 5), Turn(4, 4), Turn(5, 6)],
    }
    further, bare, short, _, goal = slope_report(found, 3).splitlines()[2:]
    assert further == "| a further batch of 100 files | 2.00 | 2.00 | 0.50 | 0.50 |"
    assert bare.endswith("| 4.00 | 4.00 | 1 | 1 |")
    assert short.endswith("| 10.00 | 20.00 | 2.50 | 5.00 |")
    assert goal.endswith("0.65 x bare: met")
    assert slope_report(found, 2).endswith("0.65 x bare: missed\n")


def test_the_runs_of_the_slope_bring_all_rows(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with ThreadPoolExecutor(1) as pool:
        write_shape(Shape("few", 4, 50), source, pool)
    with pytest.raises(SystemExit, match="200 rows instead of 201"):
        daemon_run(tmp_path, source, 201)
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        bare_run(processes, 2, source, tmp_path / "bare")
    assert sum(pq.read_metadata(f).num_rows for f in (tmp_path / "bare").iterdir()) == 200


def test_ended_processes_without_a_waiting_parent_are_counted() -> None:
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "if os.fork():\n"
        "    sys.stdin.readline()\n"
        "else:\n"
        "    open('/proc/self/comm', 'wb').write(b'\\xff) (\\xfe')\n"
        "    while time.process_time() < 0.5: pass\n"
        "    print(flush=True); sys.stdin.readline()\n"
    )
    found = Watched()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        found.look()
        used = found.seconds
        assert used >= 0.4
        process.stdin.close()
    found.look()
    assert found.seconds >= used


def test_failed_count_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def refused(_: Watched) -> None:
        asked.set()
        raise PermissionError("/proc")

    monkeypatch.setattr(Watched, "look", refused)
    with pytest.raises(PermissionError), watched():
        assert asked.wait(60)


def test_worker_peak_is_its_own_and_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; x = bytearray(200 << 20); del x\n"
        "print(flush=True); sys.stdin.readline()\n"
        "x = bytearray(50 << 20); print(flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        process.stdout.readline()
        monkeypatch.setattr(worker_memory, "python_workers", lambda: [process.pid], raising=True)
        assert worker_memory.peak_mb() > 200
        worker_memory.reset()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert 50 < worker_memory.peak_mb() < 150
        process.stdin.write("\n")
