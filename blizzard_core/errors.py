"""Every error the daemons raise on purpose.

Whether trying again can help is a property of the error's type, so the poll
loop decides by type and never by text::

    BlizzardError
    ├── ConfigError         the configuration is wrong; all problems at once; exit 2
    │   ├── UnitError       the definition or the plan of work units is invalid
    │   └── MissingExtra    a package is not installed; with the command that installs it
    ├── FencedError         another daemon has taken the pipeline over; exit 3
    ├── StateError          a checkpoint or table state that cannot be trusted
    ├── ColdStartRefused    no checkpoint, but traces of earlier work; exit 2
    ├── OrderError          names that do not sort in time, with ``order_guard: fail``
    ├── PipelineStopped     ``max_failures`` was reached, or a bad record with
    │                       ``on_bad_record: fail``; no file was skipped
    ├── SchemaConflict      a field's values have no common type, and may not be coerced
    ├── SchemaUnknown       (retryable) no record was found to infer a schema from
    ├── SourceError         a table or an API refuses a query for good
    ├── WatermarkError      a column watermark that cannot be read, written or compared
    ├── ConfigurationError  an argument of a public function that cannot be used
    ├── EngineError         (retryable) the Spark job failed as a whole
    ├── NoJava              Spark cannot start here: Java is missing or too old; exit 2
    ├── Cancelled           work was stopped because the daemon is stopping
    ├── Busy                another question of a page is at work; ask again
    ├── RequestLimitReached a page's question would cost more requests than the limit allows
    ├── QueueError          a queue of notifications refuses or does not answer
    ├── CommitError         (retryable) a Delta commit did not land
    └── StorageError        a store answered with an error
        ├── NotFound        the object is not there
        ├── BucketMissing   the bucket does not exist; its objects are unknown
        ├── AccessDenied    credentials are missing, wrong or not sufficient
        ├── UnreadableName  the store's client would ask for another object
        ├── Conflict        the condition of a write did not hold: another writer was there
        ├── TagsFull        the object has no room for another tag
        └── Unavailable     (retryable) time-outs, throttling, 5xx, broken connections
            └── Unfinished  nothing failed now, but work that failed before waits

Messages name the thing that failed and, where there is one, the remedy. They
never carry credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

# -- exit codes that are no error's, beside 0, 1 and `INTERRUPTED` --

# A secret was renewed: nothing is wrong, and the process is to be started again.
RENEWED = 4
# A check where all went well but a committer has rejected rows.
REFUSED = 5
# Recent records have other fields than the configuration.
DIFFERS = 6
# With --once: everything was done except work units that wait for another try.
FAILING = 7
# `wait`: the partition is not complete, or not clean although that was asked for.
NOT_COMPLETE = 7
NOT_CLEAN = 8
# `status`: published rows are not committed, or Penguin is down.
NOT_COMMITTING = 8
# `status`: Blizzard is down, or only fails.
NOT_INGESTING = 9


class BlizzardError(Exception):
    """Base class: its errors are reported in one line, without a trace.

    ``remedy`` is what an operator can do about any error of the class. It is empty if the remedy is
    in each error's text, or if the error passes by itself.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1
    remedy: ClassVar[str] = ""


class ConfigError(BlizzardError):
    """The configuration cannot be used. ``problems`` holds every finding, one line each."""

    exit_code = 2
    remedy = "Correct the configuration; `validate` tells every problem."

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *(f"  {p}" for p in self.problems)]))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.source, self.problems)


class UnitError(ConfigError):
    """The configuration or the state of work units is invalid (`blizzard_py.slices.units`)."""

    def __init__(self, *problems: str) -> None:
        super().__init__("work units", problems)

    def __reduce__(self) -> tuple[type[UnitError], tuple[str, ...]]:  # type: ignore[override]  # it is made of problems alone
        return type(self), self.problems


class MissingExtra(ConfigError):
    """A package of an extra is not installed (`blizzard_core.extras`). One sentence."""

    remedy = ""

    def __init__(self, module: str, feature: str, command: str) -> None:
        self.module, self.feature, self.command = module, feature, command
        super().__init__(feature, [f"needs {module}, which is not installed; run: {command}"])
        self.args = (str(self),)

    def __str__(self) -> str:
        return f"{self.source} {self.problems[0]}"

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:  # type: ignore[override]  # as above
        return type(self), (self.module, self.feature, self.command)


class StateError(BlizzardError):
    """Persisted state is unreadable, has an unknown version or contradicts itself.

    A daemon never starts fresh instead: that would ingest everything again.
    """

    remedy = "Nothing was touched. Mend what the message names, then restart the daemon."


class FencedError(BlizzardError):
    """Another daemon writes this state now; this one must not touch it any more."""

    exit_code = 3
    remedy = "Another daemon has taken this over; this one ends. Stop one of the two."


class ColdStartRefused(BlizzardError):
    """The checkpoint of earlier work is missing; a fresh start would duplicate rows."""

    exit_code = 2


class OrderError(BlizzardError):
    """File names do not sort in time, so a watermark would skip files. Nothing was skipped."""

    remedy = (
        "Rename the files so that names sort in time, or set advanced.order_guard or use_watermark:"
        " false."
    )


class PipelineStopped(BlizzardError):
    """The pipeline met more failing files or records than ``error_handling`` allows."""

    remedy = "Mend or remove the files, or raise error_handling.advanced.max_failures; restart."


class SchemaConflict(BlizzardError):
    """A field's values have no common type, with ``coerce_conflicts_to_utf8: false``."""


class SchemaUnknown(BlizzardError):
    """The schema is inferred and no file had a record yet; a later file may have one."""

    retryable = True


class SourceError(BlizzardError):
    """A table or an API rejects a request, and a retry does not help."""

    remedy = "Mend what the message names at the source or in the configuration; restart."


class WatermarkError(BlizzardError):
    """A column watermark cannot be read, written or compared. Nothing is read."""

    remedy = "Set it anew with `blizzard checkpoint set --column`, or restore the checkpoint."


class ConfigurationError(BlizzardError):
    """An argument of a public function (`blizzard_py.columns`) cannot be used."""

    exit_code = 2


class EngineError(BlizzardError):
    """The ingest job failed as a whole; no output of it counts."""

    retryable = True
    remedy = "The Spark job failed; its errors are in the log. It is tried again."


class NoJava(BlizzardError):
    """Java is missing or too old, so no batch can run on this machine."""

    exit_code = 2


class Cancelled(BlizzardError):
    """Work in progress was cancelled because the daemon is stopping."""


class CommitError(BlizzardError):
    """A Delta commit certainly did not land."""

    retryable = True
    remedy = "The commit is planned anew from the log and tried again."


class StorageError(BlizzardError):
    """A store refused or failed a request."""


class NotFound(StorageError):
    """The object or the directory does not exist."""

    remedy = "Check the URI; it is tried again."


class BucketMissing(StorageError):
    """The bucket or container does not exist, so its content is unknown.

    Not a `NotFound`, which is a valid answer to many questions: no checkpoint, log or output exists
    yet. A bucket that was removed or mistyped answers none of them.
    """

    exit_code = 10
    remedy = "Check the URI and that the bucket is there; it is tried again."


class AccessDenied(StorageError):
    """Credentials are missing, wrong or do not allow the request."""

    remedy = "Check credentials and permissions; it is tried again."


class UnreadableName(StorageError):
    """The object's name cannot be requested: the request would read another object."""


class Conflict(StorageError):
    """A conditional write found another version than the expected one.

    This does not prove another writer: if the answer to a write was lost, its repetition conflicts
    with itself. Read the object back before deciding.
    """


class TagsFull(StorageError):
    """An object has as many tags as its store allows, so it cannot get another one."""


class Unavailable(StorageError):
    """The store gave no proper answer; the same request may succeed later."""

    retryable = True
    remedy = "The store does not answer as it should; it is tried again."


class Unfinished(Unavailable):
    """There is nothing to do now, but failed files wait ``wait_secs`` for another try.

    A daemon that polls for ever continues as after an empty poll. One that runs ``--once`` waits
    that long.
    """

    remedy = ""

    def __init__(self, message: str, wait_secs: float) -> None:
        self.wait_secs = wait_secs
        super().__init__(message)

    def __reduce__(self) -> tuple[type[Unfinished], tuple[str, float]]:
        return type(self), (str(self), self.wait_secs)
