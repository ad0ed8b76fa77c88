"""A share of the differential fuzz, and that it would find what could be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import wasmtime

from blizzard_py.formats.ndjson.fast.sandbox import SandboxedProgram
from tests.blizzard_py.formats.ndjson.fast import build, fuzz
from tests.blizzard_py.formats.ndjson.fast.defects import DEFECTS
from tests.blizzard_py.formats.ndjson.fast.differential import Difference, Pair
from tests.blizzard_py.formats.ndjson.fast.nasty import Chunk, chunk

# Some seconds' worth; `make fuzz-fast` goes on from another seed for as long as it is told.
CHUNKS = 60
LINES = 100
UNTIL_FOUND = 100
# What shows seldom is looked for from a seed on that is near the first which shows it.
FROM = {
    "a point may be the last of a number": 80,
    "minus zero is zero": 50,
    "negative decimals lose their sign above": 110,
    "there is a year 0": 150,
    "a day has 24:00": 400,
    "a line that is not UTF-8 is one": 60,
}


def test_both_paths_agree() -> None:
    total = fuzz.compared(Pair(), range(CHUNKS), LINES)
    # A fuzz that hands everything over, or nothing, compares little.
    assert total.lines > 0.95 * CHUNKS * LINES
    assert total.certain > 0.4 * total.lines
    assert total.handed_over > 0.05 * total.lines
    assert total.bad > 100


def test_the_scanner_has_no_undefined_behaviour_or_overflow(
    tmp_path: Path,
) -> None:
    library = tmp_path / "scan.so"
    build.checked(library)
    # It dies of what it must not do, in a process of its own.
    done = subprocess.run(
        [sys.executable, "-m", fuzz.__name__, "--library", str(library), "--lines", "3000"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference" in done.stdout


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(tmp_path: Path, name: str) -> None:
    text, (right, wrong) = build.SOURCE.read_text(), DEFECTS[name]
    assert text.count(right) == 1
    source, artefact = tmp_path / "scan.c", tmp_path / "scan.wasm"
    source.write_text(text.replace(right, wrong))
    build.sandboxed(artefact, source)
    pair = Pair(SandboxedProgram(wasmtime, artefact.read_bytes()))
    first = FROM.get(name, 0)
    seeds = range(first, first + UNTIL_FOUND)
    assert any(_differ(pair, chunk(seed, 60, odd=0.03)) for seed in seeds)


def _differ(pair: Pair, made: Chunk) -> bool:
    try:
        pair.compare(made)
    except Difference:
        return True
    return False


def test_there_are_enough_kinds_of_defects() -> None:
    assert len(DEFECTS) >= 15
    assert FROM.keys() <= DEFECTS.keys()
