"""Spark failures in one line with a remedy, and the search for files that a transform fails on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # ships no types
from pyspark.errors import PySparkException

from blizzard_core.errors import (
    AccessDenied,
    BlizzardError,
    PipelineStopped,
    SourceError,
    StateError,
    Unavailable,
)
from blizzard_py.job import JobFile
from blizzard_py.kernels.sql_stage import RowRefused
from blizzard_py.lines.failure import bounded

# Exceptions of Spark calls, wherever they fail: in the JVM, on the way to it, in pyspark.
FAILURES = (PySparkException, Py4JError, OSError, RuntimeError)

_NO_JVM = (
    "the JVM did not start; check spark.conf, JAVA_TOOL_OPTIONS and the memory of this machine"
    " (what it printed is in the log, event `jvm`)"
)
_JVM_ENDED = (
    "the JVM has ended: it was killed (when a container runs out of memory), or it failed"
    " (what it printed is in the log, event `jvm`); the next attempt starts another"
)
_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): (No module named '[^']+'|.*)")
_VERSIONS = re.compile(r"different version: (\d+\.\d+) than that in driver: (\d+\.\d+)")
_RAISED = re.compile(r"blizzard_core\.errors\.(?P<kind>\w+): (?P<message>.*)")
_OF_READING: dict[str, type[BlizzardError]] = {
    kind.__name__: kind
    for kind in (SourceError, Unavailable, AccessDenied, PipelineStopped, StateError)
}
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# Exceptions of Spark's expressions, and of the libraries that they call, for an invalid value; a
# regular expression may overflow the stack. Failures of a machine are not included.
_OF_A_VALUE = re.compile(
    r"most recent failure: Lost task [^\n]*?\): (?P<told>(?:"
    r"java\.lang\.(?:StackOverflowError|ArithmeticException|ClassCastException|NullPointerException"
    r"|(?:IllegalArgument|NumberFormat|NegativeArraySize|UnsupportedOperation)Exception"
    r"|(?:Array|String)?IndexOutOfBoundsException)"
    r"|java\.util\.regex\.\w+|java\.util\.\w*Format\w*Exception|java\.time\.[\w.]+"
    r"|com\.(?:fasterxml\.jackson|univocity)\.[\w.]+)\b[^\n]*)"
)
_DEEP = "; a regular expression repeats a group too often for this row: (?:…)*+ does not backtrack"


def reason_of(error: Exception) -> str:
    """Return the task's exception, if there is one, in one line, with a remedy if known.

    Spark wraps a worker's exception in a JVM stack trace that contains the Python traceback as
    text. Only its last line is useful.
    """
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text or isinstance(error, Py4JNetworkError | ConnectionError):
        return _NO_JVM if "JAVA_GATEWAY_EXITED" in text else _JVM_ENDED
    if found := _VERSIONS.search(text):
        return (
            f"the executors run Python {found[1]} and this driver runs {found[2]}; both must be the"
            " same: use one image for both, or set spark.pyspark.python in spark.conf"
        )
    line = _raised_line(text)
    if missing := _MISSING.match(line):
        return bounded(
            f"the executors' Python cannot run this package ({missing[1]}); install its"
            " dependencies in their image, or set spark.pyspark.python in spark.conf"
        )
    kind, _, message = line.partition(": ")
    if kind.startswith(("blizzard_py.", "blizzard_core.")) and message:
        return bounded(message)
    return bounded(line) or _spark_reason(text) or type(error).__name__


def _raised_line(text: str) -> str:
    """Return the line of a worker's exception, ``""`` without one."""
    _, traceback, tail = text.rpartition("Traceback (most recent call last):")
    lines = tail.splitlines()[1:] if traceback else []
    return next((line for line in lines if line and not line[0].isspace()), "")


def _spark_reason(text: str) -> str:
    if found := _OF_A_VALUE.search(text):
        deep = found["told"].startswith("java.lang.StackOverflowError")
        return bounded(found["told"] + (_DEEP if deep else ""))
    for marker in ("Most recent failure: ", "SparkException: "):
        if marker in text:
            return first_line(text.partition(marker)[2])
    return first_line(text)


def reading_error(error: Exception) -> BlizzardError | None:
    """Return the error that a task's reader or kernel raised; None for any other error.

    Spark passes on text only, and the type decides whether a retry helps.
    """
    found = _RAISED.match(_raised_line(str(error)))
    kind = None if found is None else _OF_READING.get(found["kind"])
    return None if kind is None or found is None else kind(bounded(found["message"]))


def first_line(text: str) -> str:
    """Return the first line that is not blank, cut to a maximum length."""
    return bounded(next((line for line in text.splitlines() if line.strip()), ""))


def is_data_failure(error: Exception) -> bool:
    """Return whether a value made an expression fail, so that the same rows will fail again."""
    text = str(error)
    if f"{RowRefused.__module__}.{RowRefused.__name__}: " in text:
        return True
    states = _STATE.findall(text)
    # Class 22 is a data exception (a cast, a division, an overflow), 54 an exceeded limit;
    # P0001 is raise_error().
    is_data = any(state.startswith(("22", "54")) or state == "P0001" for state in states)
    return is_data or _OF_A_VALUE.search(text) is not None


class DataFailure(Exception):
    """A value made the statement fail; the same rows will fail again. ``reason`` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def find_failing_files(
    files: Sequence[JobFile], reason: str, attempt: Callable[[Sequence[JobFile]], object]
) -> dict[str, str]:
    """Return the files for which ``attempt`` fails on each alone, with its reason.

    ``reason`` is why it failed on all of them. One failing file among n costs about 2 log2(n)
    attempts on ever fewer files. The result is empty if no half fails although the whole does. Any
    other exception of ``attempt`` ends the search.
    """
    if len(files) == 1:
        return {files[0].path: reason}
    found: dict[str, str] = {}
    middle = len(files) // 2
    for half in (files[:middle], files[middle:]):
        try:
            attempt(half)
        except DataFailure as error:
            found |= find_failing_files(half, error.reason, attempt)
    return found
