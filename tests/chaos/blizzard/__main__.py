"""Command line of `tests.chaos.blizzard`."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.blizzard.fleet import Trouble
from tests.chaos.blizzard.pace import Pace
from tests.chaos.blizzard.run import planned, run_local, run_s3
from tests.chaos.console import say, say_counts
from tests.support.s3_server import s3_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.blizzard")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--store", choices=["local", "s3"], default="local")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--grace", type=float, default=20, help="seconds; all else is scaled to it")
    options = parser.parse_args()
    plan = planned(options.minutes * 60, options.seed, Pace(grace=options.grace))
    folder = Path(tempfile.mkdtemp(prefix="blizzard-chaos-"))
    say(f"seed {plan.seed}, {options.minutes:g} minutes, {options.store}, in {folder}")
    began = time.monotonic()
    try:
        if options.store == "s3":
            with s3_server() as server:
                counts = run_s3(folder, plan, server)
        else:
            counts = run_local(folder, plan)
    except Trouble as trouble:
        say(f"FAILED, {trouble}\nwhat is left is in {folder}")
        return 1
    shutil.rmtree(folder)
    counts["seconds"] = round(time.monotonic() - began)
    say_counts(counts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
