"""Limits that stop a source before it passes bad files: a bad record, or too many files.

Nothing of the batch is passed then, and the next start runs it again. So the remedy in the message
has to change how the same files are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from blizzard_core.errors import PipelineStopped
from blizzard_core.settings.document import ErrorSettings
from blizzard_py.job import FinishedFile

# How many bad files an error names.
_EXAMPLES = 5


class Tolerance:
    """Counts a source's bad files since its start, batch by batch, and says when it must stop."""

    def __init__(self, name: str, errors: ErrorSettings, is_missing: Callable[[str], bool]) -> None:
        self._name = name
        self._errors = errors
        self._is_missing = is_missing
        self._passed = 0
        self._checked = 0  # of the batch that was checked last and is not passed

    def check(self, finished: Sequence[FinishedFile]) -> None:
        """Raise `PipelineStopped` if the batch may not be passed."""
        self._check_records(finished)
        self._checked = self._check_failures(finished)

    def passed(self) -> None:
        """Count what was checked last from now on."""
        self._passed += self._checked
        self._checked = 0

    def _check_records(self, finished: Sequence[FinishedFile]) -> None:
        if self._errors.on_bad_record != "fail":
            return
        bad = [file for file in finished if file.stage == "parse"]
        if bad:
            raise PipelineStopped(
                f"{self._name}: stopped at a bad record (error_handling.on_bad_record is"
                " fail), nothing was passed over; mend or remove the file, correct the schema, or"
                f" set on_bad_record to quarantine_record: {_examples(bad)}"
            )

    def _check_failures(self, finished: Sequence[FinishedFile]) -> int:
        limit = self._errors.max_failures
        if not limit:
            return 0
        condemned = (file for file in finished if file.outcome == "quarantined")
        # One that is gone is nothing to mend; it ends with a letter.
        mendable = (file for file in condemned if not self._is_missing(file.path))
        bad = list(islice(mendable, limit - self._passed))
        if bad and self._passed + len(bad) >= limit:
            raise PipelineStopped(
                f"{self._name}: stopped at error_handling.max_failures = {limit}, nothing was"
                f" passed over; mend or remove the files, or raise the limit: {_examples(bad)}"
            )
        return len(bad)


def _examples(bad: Sequence[FinishedFile]) -> str:
    return "; ".join(f"{file.path}: {file.error}" for file in bad[:_EXAMPLES])
