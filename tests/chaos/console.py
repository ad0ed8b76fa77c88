"""Standard output of the runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_counts(counts: Mapping[str, int]) -> None:
    for what, count in counts.items():
        say(f"{count:9,}  {what}")
