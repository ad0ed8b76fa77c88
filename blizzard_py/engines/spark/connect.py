"""A Spark session whose driver is a Spark Connect server: no JVM here, gRPC to ``sc://``."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSparkSession

from blizzard_core.errors import ConfigError, EngineError
from blizzard_core.log import get_logger
from blizzard_py.engines.spark.failures import first_line, reason_of
from blizzard_py.engines.spark.masters import (
    SESSION_DEFAULTS,
    require_reachable,
    without_parameters,
)
from blizzard_py.engines.spark.numbered_tasks import NumberedFunction, run_numbered_frame
from blizzard_py.engines.spark.security import require_secured, weak_server_settings
from blizzard_py.engines.spark.session import silence_query_logs, zipped_packages
from blizzard_py.job import IngestJob

# A call is repeated for half a minute while the server does not answer: restarting a batch
# costs less than waiting for ten minutes (the client's default).
_RETRIES = 6
_MAX_BACKOFF_MS = 10_000


class ConnectSession:
    """A `Session` of a Spark Connect server.

    The server decides about the pools of its scheduler; the client cannot name one.
    """

    def __init__(self, remote: ConnectSparkSession, parallelism: int) -> None:
        self._remote = remote
        self._parallelism = parallelism

    @property
    def spark(self) -> SparkSession:
        """The session; it has the same methods as a session of this process."""
        return cast("SparkSession", self._remote)

    def parallelism(self) -> int:
        """Return the number of parallel tasks when the session was opened."""
        return self._parallelism

    @contextlib.contextmanager
    def job(self, job: IngestJob, pool: str) -> Iterator[IngestJob]:  # noqa: ARG002  # see the class
        """Tag the thread for the job. Credentials stay in the job: a client sets no properties."""
        self._remote.addTag(job.output_prefix)
        try:
            yield job
        finally:
            self._remote.removeTag(job.output_prefix)

    def reports(self, run: NumberedFunction, count: int, parts: int) -> list[str]:
        """Return the reports through a frame, the only way for a client."""
        return run_numbered_frame(self.spark, run, count, parts)

    def interrupt(self, group: str) -> None:
        """Interrupt tasks, which ends their Python workers."""
        with contextlib.suppress(PySparkException):  # it is repeated in a moment
            self._remote.interruptTag(group)

    def tasks_done(self, group: str) -> list[float]:  # noqa: ARG002  # see the method
        """Return nothing: a client sees only tasks of its own waiting thread."""
        return []

    def alive(self) -> bool:
        """Return whether the server still knows the session; not after a restart or expiry."""
        if self._remote.is_stopped:
            return False
        try:
            self._remote.conf.get("spark.sql.session.timeZone")
        except (PySparkException, OSError):
            return False
        return True

    def stop(self) -> None:
        """Release the session on the server and close the channel."""
        self._remote.stop()


def open_connect(url: str, conf: Mapping[str, str]) -> ConnectSession:
    """Return a new session on the server at ``url`` with this package on its executors.

    Raises `ConfigError` for a setting that belongs to the server, and `EngineError`.
    """
    require_secured(url, conf)
    require_reachable(url)
    silence_query_logs()
    try:
        # Not by `SparkSession.builder`, which turns the whole process into a client.
        remote = ConnectSparkSession.builder.remote(url).create()
    except (PySparkException, OSError, ValueError) as error:
        raise EngineError(f"spark.master {without_parameters(url)}: {reason_of(error)}") from None
    try:
        remote.client.set_retry_policies(
            [DefaultPolicy(max_retries=_RETRIES, max_backoff=_MAX_BACKOFF_MS)]
        )
        _configure(remote, conf)
        for weakness in weak_server_settings(url, functools.partial(_setting, remote)):
            get_logger().warning("spark_open", setting=weakness)
        with tempfile.TemporaryDirectory() as name:
            remote.addArtifacts(str(zipped_packages(Path(name))), pyfile=True)
        return ConnectSession(remote, _parallelism(remote))
    except (PySparkException, OSError) as error:
        remote.stop()
        raise EngineError(f"spark.master {without_parameters(url)}: {reason_of(error)}") from None
    except ConfigError:
        remote.stop()
        raise


def _setting(remote: ConnectSparkSession, name: str) -> str | None:
    found = remote.conf.get(name, None)
    return found.lower() if found else None


def _configure(remote: ConnectSparkSession, conf: Mapping[str, str]) -> None:
    for key, value in SESSION_DEFAULTS.items():
        remote.conf.set(key, value)
    problems = []
    for key, value in conf.items():
        try:
            remote.conf.set(key, value)
        except PySparkException as error:
            problems.append(
                f"{key}: the Spark Connect server does not let a session set it"
                f" ({first_line(str(error))}); set it where the server is started"
            )
    if problems:
        raise ConfigError("spark.conf", problems)


def _parallelism(remote: ConnectSparkSession) -> int:
    """Return the server's number of partitions of a range: as many tasks can run at once."""
    places = remote.range(1 << 16).selectExpr("spark_partition_id() AS place")
    return int(places.selectExpr("max(place) AS last").collect()[0]["last"]) + 1
