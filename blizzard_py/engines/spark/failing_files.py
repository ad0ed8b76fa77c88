"""Which files a transform fails on, found by trying. Pure but for what ``attempt`` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blizzard_py.job import JobFile


class FailedOnData(Exception):
    """A value made the statement fail; the same rows will fail it again. ``reason`` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def failing_files(
    files: Sequence[JobFile], reason: str, attempt: Callable[[Sequence[JobFile]], object]
) -> dict[str, str]:
    """The files that ``attempt`` fails on when it is given them alone, each with its reason.

    ``reason`` is why it failed on all of them. One culprit among n files costs about
    2 log2(n) attempts on ever fewer files. Empty if no half fails although the whole
    does. What else ``attempt`` raises ends the search.
    """
    if len(files) == 1:
        return {files[0].path: reason}
    found: dict[str, str] = {}
    middle = len(files) // 2
    for half in (files[:middle], files[middle:]):
        try:
            attempt(half)
        except FailedOnData as error:
            found |= failing_files(half, error.reason, attempt)
    return found
