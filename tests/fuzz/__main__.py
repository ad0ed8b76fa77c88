"""``python -m tests.fuzz [--minutes 10]``: every target for its share of the time.

What is instrumented is imported once, and each look is a fork of this process.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit("fuzz: the package atheris is for Linux on x86-64 and is not installed")

from tests.fuzz.judge import PACKAGES

AT_ONCE = 2
PLANTED_SECS = 20  # for each planted defect, at the most
KEPT = Path(__file__).parents[2] / ".fuzz"
_RUNS = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVER = re.compile(r"cov: (\d+)")


# What is imported before is not instrumented.
with atheris.instrument_imports(include=list(PACKAGES)):
    from tests.fuzz.child import FOUND, HANG_SECS, LOG, fuzz
    from tests.fuzz.planted import PLANTED
    from tests.fuzz.target import CORPUS, Target
    from tests.fuzz.targets import TARGETS

# pyarrow would load it within the first input of each look, which then counts as one that hangs.
importlib.import_module("pandas")


@dataclass
class Look:
    """Progress of one target."""

    target: Target
    folder: Path
    seconds: float
    seed: int
    planted: str = ""
    process: multiprocessing.context.ForkProcess | None = None
    until: float = 0.0
    found: dict[str, Path] = field(default_factory=dict)

    def begin(self) -> None:
        """Look on, for the time that is left."""
        self.folder.mkdir(exist_ok=True)
        self.until = time.monotonic() + self.seconds
        self.process = multiprocessing.get_context("fork").Process(
            target=fuzz, args=(self.target, self.seconds, self.folder, self.seed, self.planted)
        )
        self.process.start()

    def ended(self) -> bool:
        """Return whether the target is done; a process that the bytes ended is started again."""
        self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        known = len(self.found)
        self._gather()
        if self.process.exitcode and len(self.found) == known:
            self.found[f"the process ends with {self.process.exitcode}\n{self.log()[-3000:]}"] = (
                self.folder / LOG
            )
            return True
        self.seconds = self.until - time.monotonic()
        self.seed += 1
        # With that many kinds of findings, or the planted one, the process ended itself.
        return self.process.exitcode in {0, 1} or self.seconds < 1

    def _gather(self) -> None:
        folder = self.folder / FOUND
        for path in sorted(folder.iterdir() if folder.is_dir() else ()):
            trace = path.with_name(f"{path.name}.txt")
            if path.suffix == ".txt":
                continue
            if not trace.exists():  # libFuzzer's own: a crash, a hang, too much memory
                trace.write_text(f"{path.name.partition('-')[0]}\n\n{self.log()[-6000:]}\n")
            told = trace.read_text(errors="replace").partition("\n")[0]
            self.found.setdefault(told, path)

    def log(self) -> str:
        """Return the output of libFuzzer."""
        return (self.folder / LOG).read_text(errors="replace")

    def report(self) -> None:
        """Print a line, and one for each finding, which is kept."""
        log = self.log()
        runs, cover = sum(map(int, _RUNS.findall(log))), max([0, *map(int, _COVER.findall(log))])
        name = self.planted or self.target.name
        print(f"{name:18} {runs:>9,} inputs  {cover:>6,} branches", flush=True)
        if self.planted:
            print("  found" if self.found else "  NOT FOUND")
            return
        for what, path in self.found.items():
            kept = KEPT / self.target.name
            kept.mkdir(parents=True, exist_ok=True)
            for each in (path, path.with_name(f"{path.name}.txt")):
                if each.exists():
                    shutil.copy(each, kept / each.name)
            print(f"  FOUND {what}\n    kept in {kept}; once mended put it into {CORPUS}")


def run_all(looks: Sequence[Look]) -> Iterator[Look]:
    """Run some targets at the same time; yield each one when it is done."""
    waiting, running = list(reversed(looks)), list[Look]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(waiting.pop())
            running[-1].begin()
        left = max(1.0, min(look.until for look in running) + 2 * HANG_SECS - time.monotonic())
        ready = wait([look.process.sentinel for look in running if look.process], timeout=left)
        for look in running.copy():
            late = time.monotonic() > look.until + 2 * HANG_SECS
            if look.process.sentinel in ready or late:
                if look.ended():
                    running.remove(look)
                    yield look
                else:
                    look.begin()


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=…")
    parser.add_argument("--minutes", type=float, default=10, help="in all, by two processes")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only these")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again")
    parser.add_argument("--planted", action="store_true", help="find what planted.py puts in, too")
    chosen = parser.parse_args()
    names = chosen.target or list(TARGETS)
    share = chosen.minutes * 60 * min(AT_ONCE, len(names)) / len(names)
    seed = chosen.seed or random.randrange(1, 2**31)
    print(f"seed {seed}, {share:.0f} s for each of {len(names)}", flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        looks = [Look(TARGETS[name], Path(folder, name), share, seed) for name in names]
        if chosen.planted:
            looks += [
                Look(TARGETS[name], Path(folder, defect), PLANTED_SECS, seed, defect)
                for defect, (name, _) in PLANTED.items()
            ]
        for look in run_all(looks):
            look.report()
            wrong += bool(look.found) is not bool(look.planted)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
