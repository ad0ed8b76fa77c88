"""Command line of `tests.chaos.keyed`: many histories, deaths at every request, mutants."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

import pytest

from blizzard_core.errors import BlizzardError
from tests.chaos.console import say, say_counts
from tests.chaos.keyed.delta import play_on_delta
from tests.chaos.keyed.every_request import STORIES, die_at_every_request
from tests.chaos.keyed.large import play_large
from tests.chaos.keyed.memory import play
from tests.chaos.keyed.mutants import CORE, MERGES
from tests.support.s3_server import S3Server, s3_server
from tests.support.table_harness import footer_pool


@contextlib.contextmanager
def place(server: S3Server | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield an empty place for two tables, and its options."""
    if server is None:
        with tempfile.TemporaryDirectory() as folder:
            yield folder, {}
        return
    bucket = server.new_bucket()
    yield f"s3://{bucket}/lake", server.options
    server.drop_bucket(bucket)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--store", choices=("memory", "local", "s3"), default="memory")
    parser.add_argument("--deaths", action="store_true", help="one at each request, in turn")
    parser.add_argument("--mutants", action="store_true", help="find who notices each")
    parser.add_argument("--large", action="store_true", help="more rows than one merge takes")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(s3_server()) if options.store == "s3" else None
        pool = stack.enter_context(footer_pool())
        if options.mutants:
            notice(pool, options.histories)
        elif options.large:
            with place(server) as (uri, more):
                say_counts(play_large(uri, pool, more))
        elif options.deaths:
            for name in STORIES:
                with place(server) as (uri, more):
                    say_counts(die_at_every_request(name, uri, pool, more))
        else:
            say(f"seed {options.seed}, {options.histories} histories")
            say_counts(play_all(options.store, server, pool, options.seed, options.histories))


def play_all(
    store: str, server: S3Server | None, pool: Executor, first: int, count: int
) -> Counter[str]:
    """Play histories; say every minute how many are equal so far."""
    counts: Counter[str] = Counter()
    told = time.monotonic()
    for seed in range(first, first + count):
        try:
            if store == "memory":
                play(seed)
            else:
                with place(server) as (uri, more):
                    counts += play_on_delta(uri, pool, seed, more)
        except BaseException:
            say(f"seed {seed}")
            raise
        if time.monotonic() - told > 60:
            told = time.monotonic()
            say(f"{seed + 1 - first:9,}  equal so far")
    return counts


def notice(pool: Executor, histories: int) -> None:
    """Print for each mutant the first history that notices it."""

    def on_delta(seed: int) -> None:
        with place(None) as (uri, more):
            play_on_delta(uri, pool, seed, more)

    plays: dict[str, Callable[[int], object]] = {"core": play, "merges": on_delta}
    for kind, mutants in (("core", CORE), ("merges", MERGES)):
        for mutant in mutants:
            found = "not noticed"
            with pytest.MonkeyPatch.context() as patch:
                mutant(patch)
                for seed in range(histories):
                    try:
                        plays[kind](seed)
                    except (AssertionError, BlizzardError) as error:
                        told = str(error).splitlines()[0] if str(error) else type(error).__name__
                        found = f"{seed:5}  {told[:80]}"
                        break
            say(f"{kind:7} {mutant.__name__:32} {found}")


if __name__ == "__main__":
    main()
