"""Limits that stop a source at a bad record or at too many bad files.

The batch is not committed then, and the next start runs it again. So the remedy in the message must
change the outcome of the same files.
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
    """Counts a source's bad files since its start, and stops it at a limit."""

    def __init__(self, name: str, errors: ErrorSettings, is_missing: Callable[[str], bool]) -> None:
        self._name = name
        self._errors = errors
        self._is_missing = is_missing
        self._passed = 0
        self._checked = 0  # of the last checked batch, until it is committed

    def check(self, finished: Sequence[FinishedFile]) -> None:
        """Raise `PipelineStopped` if the batch may not be committed."""
        self._check_records(finished)
        self._checked = self._check_failures(finished)

    def count_committed(self) -> None:
        """Count the bad files of the last checked batch, which is committed."""
        self._passed += self._checked
        self._checked = 0

    def _check_records(self, finished: Sequence[FinishedFile]) -> None:
        if self._errors.on_bad_record != "fail":
            return
        bad = [file for file in finished if file.stage == "parse"]
        if bad:
            raise PipelineStopped(
                f"{self._name}: stopped at a bad record, because error_handling.on_bad_record is"
                " fail. No file was skipped. Correct or remove the file, correct the schema, or"
                f" set on_bad_record to quarantine_record: {_examples(bad)}"
            )

    def _check_failures(self, finished: Sequence[FinishedFile]) -> int:
        limit = self._errors.advanced.max_failures
        if not limit:
            return 0
        condemned = (file for file in finished if file.outcome == "quarantined")
        # A missing file cannot be corrected; it becomes a dead letter.
        present = (file for file in condemned if not self._is_missing(file.path))
        bad = list(islice(present, limit - self._passed))
        if bad and self._passed + len(bad) >= limit:
            raise PipelineStopped(
                f"{self._name}: stopped at error_handling.advanced.max_failures = {limit}. No file"
                f" was skipped. Correct or remove the files, or raise the limit: {_examples(bad)}"
            )
        return len(bad)


def _examples(bad: Sequence[FinishedFile]) -> str:
    return "; ".join(f"{file.path}: {file.error}" for file in bad[:_EXAMPLES])
