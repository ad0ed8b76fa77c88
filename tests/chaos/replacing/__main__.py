"""Command line of `tests.chaos.replacing`: many histories."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.chaos.replacing.run import run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=150)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}, {options.histories} histories\n")
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.histories):
        with tempfile.TemporaryDirectory() as folder:
            try:
                total.update(run(Path(folder), seed))
            except AssertionError:
                sys.stdout.write(f"seed {seed}\n")
                raise
    for what, count in sorted(total.items()):
        sys.stdout.write(f"{count:7,}  {what}\n")


if __name__ == "__main__":
    main()
