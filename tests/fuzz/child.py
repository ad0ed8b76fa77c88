"""libFuzzer with one target in its own process, which its input may end."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from random import Random
from typing import Any

import atheris

from tests.fuzz.judge import Findings, bound_memory
from tests.fuzz.planted import PLANTED
from tests.fuzz.target import Target

# A hang in code that is not ours. Slow code of ours is told by `judge`.
HANG_SECS = 60
# Of memory in use, which the limit on addresses leaves room for.
RSS_MB = 3072
LOG, FOUND = "log", "found"


def fuzz(target: Target, seconds: float, folder: Path, seed: int, planted: str) -> None:
    """Look for so long, and end the process. What is found lies in ``folder``/`FOUND`.

    With a defect ``planted`` the first finding is the last.
    """
    with (folder / LOG).open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    findings = Findings(target, folder / FOUND)
    if planted:
        PLANTED[planted][1]()
        findings.most = 1
    seeds = _seeded(target, folder / "seeds")
    grown = folder / "corpus"
    grown.mkdir(exist_ok=True)
    arguments = [
        *("fuzz", str(grown), str(seeds)),
        f"-max_total_time={max(1, round(seconds))}",
        f"-max_len={target.max_bytes}",
        f"-timeout={HANG_SECS}",
        f"-report_slow_units={HANG_SECS}",  # by the wall's clock, which a busy machine slows down
        f"-rss_limit_mb={RSS_MB}",
        f"-artifact_prefix={folder / FOUND}/",
        f"-seed={seed}",
        "-print_final_stats=1",
    ]
    # What is imported or made with the first use takes its time, which no bytes are guilty of.
    with contextlib.suppress(Exception):
        target.check(next(iter(target.seeds())))
    bound_memory()
    atheris.Setup(arguments, findings.one, custom_mutator=_mutator(target))
    atheris.Fuzz()


def _mutator(target: Target) -> Any:
    """Half of the changes know what the bytes are."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = Random(seed)
        if target.mutate is not None and chance.random() < 0.5:
            changed = target.mutate(data, chance)
            if changed is not None and len(changed) <= most:
                return changed
        return atheris.Mutate(data, most)

    return mutate


def _seeded(target: Target, seeds: Path) -> Path:
    """Make a folder with the target's seeds and its earlier findings."""
    seeds.mkdir(exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (seeds / f"{number:04d}").write_bytes(data)
    for path in target.corpus():
        (seeds / path.name).write_bytes(path.read_bytes())
    return seeds
