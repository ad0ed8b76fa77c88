"""``make bench-light``: what both daemons cost while they do little.

    python -m benchmarks.light
    python -m benchmarks.light --before ../older-checkout --only commands tiny
    ORIGINAL=run-original.sh python -m benchmarks.light --only tiny plain

CPU seconds are those of a command with all its descendants, Java and workers included. Memory is
the proportional set size (PSS) of a daemon and its descendants: other programs that map the same
libraries make it smaller. ``--only alone`` counts each page of a file once, as if there were none.
Each figure is the median of the rounds. With ``--before`` another checkout runs in turn with this
one, so that both see the same load of the machine. The folder of each case is new; its rows are
counted at the end.

``ORIGINAL`` is a command that runs the Rust original over the files in ``raw`` of its working
directory, and ends when they are ingested. It runs in turn with the cases of files.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import pyarrow.parquet as pq

from tests.support.scenario import ROOT

_SUBREAPER = 36  # prctl(2): descendants whose parents end become children of this process
_WARM_SECS = 90.0  # idle workers end after 60 to 70 s, their daemon 5 to 10 s later
_PAGE = resource.getpagesize()
_CONFIG = """
pipelines:
  events:
    sources:
      main: { source_uri: ./raw, poll_interval: 1s }
    sink: { table_uri: ./lake/events }
    schema:
      fields: [{ name: id, type: int64 }, { name: text, type: string }]
"""
_SOURCE = ("--pipeline", "events", "--source", "main")
COMMANDS: Mapping[str, Sequence[str]] = {
    "blizzard --version": ("blizzard_py", "--version"),
    "blizzard --help": ("blizzard_py", "--help"),
    "blizzard backfill --help": ("blizzard_py", "backfill", "--help"),
    "penguin --help": ("penguin_py", "--help"),
    "blizzard status": ("blizzard_py", "status", "a.yaml"),
    "blizzard checkpoint show": ("blizzard_py", "checkpoint", "show", "a.yaml", *_SOURCE),
}
# What the product promises, in CPU seconds or MB; None: it is only shown.
GOALS: dict[str, float | None] = {
    "blizzard --version": 0.15,
    "blizzard --help": 0.3,
    "blizzard backfill --help": 0.3,
    "penguin --help": 0.3,
    "blizzard status": 0.6,
    "blizzard checkpoint show": 0.6,
    "5,000 files of three rows": 8.0,
    "restart with 20,000 done files, to the first poll": 1.0,
    "idle, warm: both daemons": 350.0,
    "idle, without Spark: blizzard": 110.0,
    "peak: 3.2 M rows in 200 files": 600.0,
}


# The memory in MB of processes with all their descendants.
Memory: TypeAlias = Callable[[Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Case:
    """A figure: how it is measured in a new folder by the code of a checkout.

    ``files`` are those that the original can ingest as well, as `write_files` has them.
    """

    name: str
    unit: str
    measure: Callable[[Path, Path], float]
    files: tuple[int, int, str] | None = None


def program(checkout: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command of a checkout in the working directory, without its output."""
    return _started([sys.executable, "-m", *arguments], checkout)


def _started(command: Sequence[str], checkout: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def cpu_secs(checkout: Path, *arguments: str) -> float:
    """Return the CPU seconds of a command and of all that it started. Raises if it fails."""
    return _cpu_secs([sys.executable, "-m", *arguments], checkout)


def _cpu_secs(command: Sequence[str], checkout: Path = ROOT) -> float:
    before = _used()
    code = _started(command, checkout).wait()
    assert code == 0, f"{shlex.join(command)}: exit code {code}"
    with suppress(ChildProcessError):
        while True:
            os.wait()  # Java ends after the command
    return _used() - before


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(arguments: Sequence[str]) -> Callable[[Path, Path], float]:
    """Return the measure of a command on a source without files."""

    def measure(checkout: Path, folder: Path) -> float:
        write_files(folder, 0, 0)
        return cpu_secs(checkout, *arguments)

    return measure


def write_files(folder: Path, files: int, rows: int, text: str = "") -> None:
    """Write the configuration, and files of so many rows."""
    (folder / "a.yaml").write_text(_CONFIG)
    (folder / "raw").mkdir()
    for number in range(files):
        ids = range(number * rows, (number + 1) * rows)
        lines = (f'{{"id":{id_},"text":"{text}"}}\n' for id_ in ids)
        (folder / f"raw/{number:06}.json").write_text("".join(lines))


def ingest(files: int, rows: int, text: str = "") -> Callable[[Path, Path], float]:
    """Return the measure of one run over such files, start included."""

    def measure(checkout: Path, folder: Path) -> float:
        write_files(folder, files, rows, text)
        spent = cpu_secs(checkout, "blizzard_py", "run", "a.yaml", "--once")
        found = sum(
            pq.read_metadata(path).num_rows for path in folder.glob("lake/events/*.parquet")
        )
        assert found == files * rows, f"{found:,} rows"
        return spent

    return measure


def once_wall(checkout: Path, folder: Path) -> float:
    """Return the seconds until a run over one small file has ended."""
    write_files(folder, 1, 1)
    began = time.perf_counter()
    running = program(checkout, "blizzard_py", "run", "a.yaml", "--once")
    assert running.wait() == 0
    secs = time.perf_counter() - began
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return secs


def restart(checkout: Path, folder: Path) -> float:
    """Return the CPU seconds of a daemon until its first poll has found 20,000 done files."""
    write_files(folder, 20_000, 1)
    cpu_secs(checkout, "blizzard_py", "run", "a.yaml", "--once")
    with daemons(checkout, "blizzard_py") as [pid]:
        # It is written within a second of the first poll, and not by the run before.
        _wait(lambda: list(folder.glob("lake/events/_blizzard/**/*_heartbeat.json")))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def daemons(checkout: Path, *packages: str) -> Iterator[list[int]]:
    """Run daemons until the block ends; yield their process numbers."""
    running = [program(checkout, package, "run", "a.yaml") for package in packages]
    try:
        yield [each.pid for each in running]
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait()
        with suppress(ChildProcessError):
            while True:
                os.wait()


def idle_cold(memory: Memory, checkout: Path, folder: Path) -> float:
    """Return the memory of a Blizzard that has found nothing yet."""
    write_files(folder, 0, 0)
    with daemons(checkout, "blizzard_py") as pids:
        _wait(lambda: list(folder.glob("lake/events/_blizzard/**/*.json")))
        return memory(pids)


def idle_warm(memory: Memory, checkout: Path, folder: Path) -> float:
    """Return the memory of both daemons that have ingested and committed a file."""
    write_files(folder, 1, 20_000)
    with daemons(checkout, "blizzard_py", "penguin_py") as pids:
        _wait((folder / "lake/events/_delta_log/00000000000000000000.json").exists)
        time.sleep(_WARM_SECS)
        return memory(pids)


def peak(memory: Memory, checkout: Path, folder: Path) -> float:
    """Return the largest memory of both daemons while they ingest and commit large files."""
    files, rows = 200, 16_000
    write_files(folder, files, rows, "x" * 80)
    log, most = folder / "lake/events/_delta_log", 0.0
    with daemons(checkout, "blizzard_py", "penguin_py") as pids:
        while _committed(log) < files * rows:
            most = max(most, memory(pids))
            time.sleep(0.2)
    return most


def _committed(log: Path) -> int:
    lines = (line for path in log.glob("*.json") for line in path.read_text().splitlines())
    added = [json.loads(line)["add"] for line in lines if line.startswith('{"add":')]
    return sum(json.loads(each["stats"])["numRecords"] for each in added)


def _wait(is_there: Callable[[], object], secs: float = 180.0) -> None:
    until = time.monotonic() + secs
    while not is_there():
        assert time.monotonic() < until, "the daemon does not get there"
        time.sleep(0.2)


def pss_mb(pids: Sequence[int]) -> float:
    """Return the proportional set size of processes and all their descendants."""
    return sum(_rollup_mb(pid, "Pss") for pid in _trees(pids))


def alone_mb(pids: Sequence[int]) -> float:
    """Return what `pss_mb` would, if no other process mapped the same files."""
    trees = _trees(pids)
    pages = {page for pid in trees for page in _file_pages(pid)}
    return sum(_rollup_mb(pid, "Pss_Anon") for pid in trees) + len(pages) * _PAGE / (1 << 20)


def _trees(pids: Sequence[int]) -> set[int]:
    return {pid for each in pids for pid in _tree(each)}


def _file_pages(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the file and number of each page of a file that a process has mapped and not changed.

    Bit 63 of an entry says that the page is there, bit 61 that it is the file's.
    """
    with suppress(OSError), Path(f"/proc/{pid}/pagemap").open("rb") as entries:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, _, offset, device, inode = line.split()[:5]
            if inode == "0":
                continue
            begin, end = (int(address, 16) // _PAGE for address in place.split("-"))
            entries.seek(begin * 8)
            first = int(offset, 16) // _PAGE - begin
            found = array("Q", entries.read((end - begin) * 8))
            for number, entry in enumerate(found, begin + first):
                if entry >> 63 & entry >> 61 & 1:
                    yield f"{device} {inode}", number


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                yield from _tree(int(child))


def _rollup_mb(pid: int, key: str) -> float:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))
    return 0.0  # it has ended


def _memory_cases(memory: Memory, suffix: str = "") -> list[Case]:
    measures = {
        "idle, without Spark: blizzard": idle_cold,
        "idle, warm: both daemons": idle_warm,
        "peak: 3.2 M rows in 200 files": peak,
    }
    return [Case(f"{name}{suffix}", "MB", partial(each, memory)) for name, each in measures.items()]


_TINY = (5_000, 3, "")
_PLAIN = (1, 1_300_000, "x" * 200)
GROUPS: Mapping[str, Sequence[Case]] = {
    "commands": [Case(name, "CPU s", command(given)) for name, given in COMMANDS.items()],
    "start": [
        Case("run --once of one small file", "CPU s", ingest(1, 1)),
        Case("run --once of one small file, wall", "s", once_wall),
    ],
    "tiny": [Case("5,000 files of three rows", "CPU s", ingest(*_TINY), _TINY)],
    "plain": [Case("one plain file of 300 MB", "CPU s", ingest(*_PLAIN), _PLAIN)],
    "restart": [Case("restart with 20,000 done files, to the first poll", "CPU s", restart)],
    "memory": _memory_cases(pss_mb),
    "alone": _memory_cases(alone_mb, ", alone"),
}
_USUAL = [name for name in GROUPS if name != "alone"]


def measured(case: Case, checkouts: Sequence[Path], original: str, rounds: int) -> list[float]:
    """Return the median for each checkout, and of the original where it can; all run in turn."""
    measures = [partial(case.measure, checkout) for checkout in checkouts]
    if original and case.files is not None:
        measures.append(partial(original_secs, original, case.files))
    found: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for place, measure in enumerate(measures):
            folder = Path(tempfile.mkdtemp())
            here = Path.cwd()
            os.chdir(folder)
            try:
                found[place].append(measure(folder))
            finally:
                os.chdir(here)
                shutil.rmtree(folder, ignore_errors=True)
    return [median(each) for each in found]


def original_secs(command: str, files: tuple[int, int, str], folder: Path) -> float:
    """Return the CPU seconds that the original takes for such files."""
    write_files(folder, *files)
    return _cpu_secs(shlex.split(command))


def main() -> int:
    """Print a line for each figure; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description="Measure starts, small work and idle memory.")
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=_USUAL, choices=list(GROUPS))
    chosen = parser.parse_args()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    checkouts = [ROOT, *([chosen.before.resolve()] if chosen.before else [])]
    original = os.environ.get("ORIGINAL", "")
    others = ["before"] * bool(chosen.before) + ["original"] * bool(original)
    heads = "".join(f"{name:>9}{'ratio':>7}" for name in others)
    print(f"{'':36} {'':6} {'now':>8} {'goal':>8}{heads}")
    missed = []
    for case in (case for group in chosen.only for case in GROUPS[group]):
        now, *rest = measured(case, checkouts, original, chosen.rounds)
        goal = GOALS.get(case.name)
        cells = f"{now:8.2f} {'-' if goal is None else f'{goal:g}':>8}"
        cells += "".join(f"{each:9.2f}{now / each:7.2f}" for each in rest)
        print(f"{case.name:36} {case.unit:6} {cells}", flush=True)
        if goal is not None and now > goal:
            missed.append(f"{case.name}: {now:.2f} {case.unit}, wanted {goal:g}")
    print("\n".join(["", *(missed or ["all goals are met"])]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
