"""Credentials of a job, which go to its tasks outside its closure.

Spark keeps a closure as a block, gives it to any process that requests it, and may write it to a
disk. A job's property is sent with each task's description from driver to executor, and event logs
leave it out. So stores and connections travel without their options, and a task gets these when it
begins.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext, TaskContext

from blizzard_core.storage.protocol import StorageOptions
from blizzard_py.job import IngestJob, Place
from blizzard_py.reading import Access

# Event logs leave out those properties of a job whose name looks like a secret's, if the context
# has a setting of that name. A name of Spark's own does not work: each query replaces the job's
# settings by the session's.
SECRETS_PROPERTY = "blizzard.secret.options"


class _HasJob(Protocol):
    """Any kind of task."""

    @property
    def job(self) -> IngestJob: ...


T = TypeVar("T", bound=_HasJob)


@dataclass(frozen=True, slots=True)
class _Secrets:
    source: StorageOptions = field(repr=False)
    sink: StorageOptions = field(repr=False)
    access: Mapping[str, Any] | None = field(repr=False)
    uri: str = field(repr=False)


def strip_secrets(job: IngestJob) -> tuple[IngestJob, str]:
    """Return the job without secrets, and these as the value of `SECRETS_PROPERTY`."""
    settings, reading = job.settings, job.reading
    access = None if reading is None else reading.access
    secrets = _Secrets(
        settings.source.options,
        settings.sink.options,
        None if access is None else access.options,
        "" if access is None else access.uri,
    )
    bare = dataclasses.replace(
        job,
        settings=dataclasses.replace(
            settings, source=Place(settings.source.uri), sink=Place(settings.sink.uri)
        ),
        reading=reading and dataclasses.replace(reading, access=_bare(reading.access)),
    )
    return bare, base64.b64encode(pickle.dumps(secrets)).decode()


@contextlib.contextmanager
def attach_secrets(context: SparkContext, job: IngestJob) -> Iterator[IngestJob]:
    """Yield the job without secrets; Spark jobs that this thread starts inside carry them."""
    bare, secrets = strip_secrets(job)
    context.setLocalProperty(SECRETS_PROPERTY, secrets)
    try:
        yield bare
    finally:
        with contextlib.suppress(Py4JError, OSError):  # the JVM may have failed
            context.setLocalProperty(SECRETS_PROPERTY, None)  # type: ignore[arg-type]  # removes it


def restore_secrets(task: T) -> T:
    """Return a task with the credentials of its job."""
    secrets = _task_secrets()
    if secrets is None:
        return task
    settings = task.job.settings
    filled = dataclasses.replace(
        settings,
        source=Place(settings.source.uri, secrets.source),
        sink=Place(settings.sink.uri, secrets.sink),
    )
    job = dataclasses.replace(task.job, settings=filled)
    return dataclasses.replace(task, job=job)  # type: ignore[type-var]  # all are dataclasses


def restore_sink(sink: Place) -> Place:
    """Return the sink with its credentials, for a task that has only the sink."""
    secrets = _task_secrets()
    return sink if secrets is None else Place(sink.uri, secrets.sink)


def restore_access(access: Access) -> Access:
    """Return the access to a table or an API with its credentials."""
    secrets = _task_secrets()
    if secrets is None or secrets.access is None:
        return access
    return dataclasses.replace(access, uri=secrets.uri, options=secrets.access)


def _bare(access: Access) -> Access:
    # A database's address may contain a password as well.
    return dataclasses.replace(access, uri="", options={})


def _task_secrets() -> _Secrets | None:
    """Return the job's secrets; None without properties: on Spark Connect the closure has all."""
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(SECRETS_PROPERTY)
    return None if not value else _read(value)


@functools.lru_cache(maxsize=8)
def _read(value: str) -> _Secrets:
    found = pickle.loads(base64.b64decode(value))  # noqa: S301  # our driver wrote it
    assert isinstance(found, _Secrets)  # noqa: S101  # nobody else has this property's name
    return found
