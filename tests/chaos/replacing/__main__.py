"""Command line of `tests.chaos.replacing`: many histories."""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.console import say, say_counts
from tests.chaos.replacing.history import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=150)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    say(f"seed {options.seed}, {options.histories} histories")
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            try:
                total.update(run(Path(folder), seed))
            except AssertionError:
                say(f"seed {seed}")
                raise
    say_counts(total)


if __name__ == "__main__":
    main()
