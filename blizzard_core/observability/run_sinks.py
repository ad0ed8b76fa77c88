"""The sinks of a configuration. Their libraries are optional, and loaded only if it names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from blizzard_core.observability.runs import RunSink
from blizzard_core.settings.document import Config
from blizzard_core.settings.needed_extras import check_extras, report_extras


@contextmanager
def run_sinks(config: Config, daemon: str) -> Iterator[list[RunSink]]:
    """Open the receivers of runs that the configuration names, and close them after the block.

    Raises `ConfigError` if a library is not installed.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(closing(sink)) for sink in _opened(config, daemon)]


def _opened(config: Config, daemon: str) -> list[RunSink]:
    check_extras(report_extras(config))
    found: list[RunSink] = []
    if config.traces is not None:
        from blizzard_core.observability.traces import traces  # noqa: PLC0415  # see above

        found.append(traces(daemon, config.traces))
    if config.lineage is not None:
        from blizzard_core.observability.lineage import lineage  # noqa: PLC0415  # see above

        found.append(lineage(config.lineage, os.environ))
    if daemon == "blizzard" and any(table.notify for table in config.tables.values()):
        from blizzard_core.observability.commit_calls import (  # noqa: PLC0415  # see above
            CommitCalls,
            calls_of,
            post_call,
        )

        found.append(CommitCalls(calls_of(config), post_call))
    return found
