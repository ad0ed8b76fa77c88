"""Spark's configuration for a master URL, and the check that the master answers.

Pure, except for `require_reachable`.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from blizzard_core.errors import ConfigError, EngineError
from blizzard_py.engines.spark.security import (
    SECURE_DEFAULTS,
    SUBSTITUTE,
    require_secured,
    with_own_redaction,
)

# A crashed worker costs a retry; plain local[N] never retries.
_LOCAL_ATTEMPTS = 3
_LOCAL = re.compile(r"local(?:\[(?P<cores>\d+|\*)\])?")
_CONNECT_SECS = 5.0
_DEFAULT_PORTS = {"spark": 7077, "sc": 15002}

# Settings for any session, also one of a foreign server.
SESSION_DEFAULTS = {
    # Plans have one stage or two; adapting them costs milliseconds and gains nothing.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    SUBSTITUTE: "false",
    # A transform is checked by its whole plan, not by the beginning of each line.
    "spark.sql.debug.maxToStringFields": "100000",
}
# Arrow's own allocators keep what was freed, 50 MB in each worker. A worker has one thread that
# works, so one arena of the C library serves it. Blocks of a few MB come and go with each piece of
# a file: kept, they spare page faults, a fifth of the work. Larger ones leave gaps between them.
# numpy multiplies no matrices here.
WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 20),
    "OPENBLAS_NUM_THREADS": "1",
}
_DEFAULTS = {
    **SESSION_DEFAULTS,
    **SECURE_DEFAULTS,
    # Each pipeline has its own pool, so a long batch of one does not delay another.
    "spark.scheduler.mode": "FAIR",
    # Spark would end its process for a regular expression that overflows its stack, and with it
    # the work of all others there: for one row, and again at each attempt.
    "spark.executor.killOnFatalError.depth": "0",
    **{f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()},
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Workers serve jobs with and without a frame only if their environments are equal, and
    # frames would set this in theirs.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Larger values go through a file that pyspark never removes.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # Between the JVM and its workers; TCP makes an empty job four times as long.
    "spark.python.unix.domain.socket.enabled": "true",
}
_LOCAL_DEFAULTS = {
    # No other machine needs to reach the driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The package is certainly available before the first task: executors get it with the task.
    "spark.python.daemon.module": "blizzard_py.engines.spark.worker_daemon",
    # An allocator that Arrow loads would start a thread, before the daemon forks.
    "spark.executorEnv.JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_IMAGE = "spark.kubernetes.container.image"
_EXECUTOR_IMAGE = "spark.kubernetes.executor.container.image"


def is_local(master: str) -> bool:
    """Return whether the driver's JVM runs the tasks."""
    return master == "local" or master.startswith("local[")


def is_connect(master: str) -> bool:
    """Return whether a Spark Connect server runs the driver, so that this process has no JVM."""
    return master.startswith("sc://")


def is_kubernetes(master: str) -> bool:
    """Return whether executors are pods."""
    return master.startswith("k8s://")


def with_retries(master: str) -> str:
    """Return ``local[N]`` as ``local[N,3]``; any other master unchanged."""
    found = _LOCAL.fullmatch(master)
    return f"local[{found['cores'] or 1},{_LOCAL_ATTEMPTS}]" if found else master


def settings(
    master: str, conf: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return Spark's configuration: our settings, overridden by the user's.

    ``environment`` describes the pod; see `kubernetes_settings`. Raises `ConfigError` for a
    Kubernetes master without an image, and for settings that would leave Spark open.
    """
    require_secured(master, conf)
    by_master: Mapping[str, str] = {}
    if is_local(master):
        by_master = _LOCAL_DEFAULTS
    elif is_kubernetes(master):
        if _IMAGE not in conf and _EXECUTOR_IMAGE not in conf:
            raise ConfigError(
                "spark.conf",
                [f"{_IMAGE}: is required for a k8s:// master; the image that has this package"],
            )
        by_master = kubernetes_settings(environment or {})
    return {**_DEFAULTS, **by_master, **with_own_redaction(conf)}


def kubernetes_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return how executor pods find the driver and end with it, if the driver is a pod too.

    The pod's manifest passes its name, address and namespace as ``POD_NAME``, ``POD_IP`` and
    ``POD_NAMESPACE`` (docs/design/engine.md). Missing values are left to Spark. The driver's name
    makes it the owner of its executors: Kubernetes removes them with it, also after a ``kill -9``.
    """
    found: dict[str, str] = {}
    if address := environment.get("POD_IP"):
        found["spark.driver.host"] = address
        found["spark.driver.bindAddress"] = "0.0.0.0"  # noqa: S104  # a pod has one address
    if name := environment.get("POD_NAME"):
        found["spark.kubernetes.driver.pod.name"] = name
        found["spark.kubernetes.executor.podNamePrefix"] = name[:40].strip("-.")
    if namespace := environment.get("POD_NAMESPACE"):
        found["spark.kubernetes.namespace"] = namespace
    return found


def without_parameters(master: str) -> str:
    """Return the URL to show: the parameters of ``sc://`` may contain a token."""
    return master.partition(";")[0]


def addresses(master: str) -> Iterator[tuple[str, int]]:
    """Yield the hosts and ports of a master URL; nothing for a local one.

    ``spark://a:1,b:2`` names two, either of which is enough. Raises `ConfigError` for a URL without
    a readable port.
    """
    scheme, separator, rest = master.partition("://")
    if not separator:
        return
    if scheme == "k8s":
        # k8s://host is https, unless it is k8s://http://host.
        url = urlsplit(rest if "://" in rest else f"https://{rest}")
        default = 80 if url.scheme == "http" else 443
        places = [url.netloc]
    else:
        default = _DEFAULT_PORTS.get(scheme, 0)
        places = re.split("[/;]", rest, maxsplit=1)[0].split(",")
    for place in places:
        try:
            parts = urlsplit(f"//{place}")
            host, port = parts.hostname, parts.port or default
        except ValueError:
            host, port = None, 0
        if not host or not port:
            raise ConfigError(
                "spark.master", [f"{without_parameters(master)}: names no host and port"]
            )
        yield host, port


def require_reachable(master: str, timeout_secs: float = _CONNECT_SECS) -> None:
    """Raise `EngineError` within seconds if nothing listens at the master's address.

    Spark itself tries for a minute (a cluster) or ten (Connect), and its error says less.
    """
    problems = []
    for host, port in addresses(master):
        try:
            socket.create_connection((host, port), timeout_secs).close()
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    if problems:
        raise EngineError(
            f"spark.master {without_parameters(master)} cannot be reached ({'; '.join(problems)});"
            " check the URL, that it runs, and that this machine may connect to it"
        )
