"""Command line of `tests.chaos.keyed`: many histories."""

from __future__ import annotations

import argparse
import random
import sys

import structlog

from tests.chaos.keyed.memory import play


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    sys.stdout.write(f"seed {options.seed}, {options.histories} histories\n")
    for seed in range(options.seed, options.seed + options.histories):
        try:
            play(seed)
        except BaseException:
            sys.stdout.write(f"seed {seed}\n")
            raise
    sys.stdout.write("all equal\n")


if __name__ == "__main__":
    main()
