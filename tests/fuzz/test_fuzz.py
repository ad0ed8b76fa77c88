"""Old findings stay mended, a short search finds none, and the search finds planted defects."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.judge import judge
from tests.fuzz.planted import PLANTED
from tests.fuzz.target import CORPUS, Target
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
# There is no wheel for other machines.
needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is for Linux on x86-64"
)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_corpus_keeps_the_contract(target: Target) -> None:
    known = [*target.seeds(), *(path.read_bytes() for path in target.corpus())]
    for data in known:
        judge(target, data)
    assert known


def test_the_corpus_is_small_and_of_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < 1 << 20


@needs_atheris
def test_a_share_of_looking_finds_planted_defects_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--minutes", "0.08", "--seed", "17", "--planted"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"\n{name} " in done.stdout for name in (*TARGETS, *PLANTED))
