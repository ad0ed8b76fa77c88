"""Options of the JVMs of the tests, which run for some seconds."""

from __future__ import annotations

import os

from blizzard_py.engines.spark.class_archive import archive_options

_SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"


def _options() -> str:
    archive = archive_options("", os.environ)
    # `make test` has written one; without it only our own driver may.
    used = archive if any("SharedArchiveFile" in option for option in archive) else []
    # Optimised code costs more than tests of a few rows gain by it.
    return " ".join(["-XX:TieredStopAtLevel=1", *used])


SHORT_LIVED = _options()


def shorten_starts() -> None:
    """Have all drivers that this process and its children start begin as `SHORT_LIVED` ones."""
    given = os.environ.get(_SUBMIT_OPTIONS, "")
    if SHORT_LIVED not in given:  # a worker of the tests has it from the process that started it
        os.environ[_SUBMIT_OPTIONS] = f"{SHORT_LIVED} {given}".strip()
