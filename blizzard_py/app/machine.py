"""Needs of a batch on this machine: Java, packages, disk and memory.

Nothing is started and no request is made, so `run` and `validate` check it, too.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from blizzard_core.doctor.findings import CheckResult, failed
from blizzard_core.errors import ConfigError, NoJava
from blizzard_core.log import get_logger
from blizzard_core.settings.document import Config
from blizzard_core.settings.needed_extras import check_extras, needed_extras
from blizzard_py.engines.java import require_java

_SUBJECT = "this machine"
_GB = 1e9
# Temporary files of a JVM, its workers and bad records of a batch.
_LEAST_DISK = 1 << 30
# What docs/guides/kubernetes.md plans, in GB: a JVM beside its heap, the daemon, a worker.
_JVM_GB, _DAEMON_GB, _WORKER_GB, _DRIVER_GB = 0.5, 0.2, 0.3, 2.0
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_HEAP = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"k": 1e-6, "": 1e-3, "m": 1e-3, "g": 1.0, "t": 1e3}
# The limit of a container, in both versions of cgroups.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_machine(
    config: Config, environment: Mapping[str, str] = os.environ
) -> Iterator[CheckResult]:
    """Yield what this machine has, and what it lacks for the configuration."""
    try:
        java = require_java(config.spark.master, environment)
    except NoJava as error:
        yield from failed(_SUBJECT, "java", error)
    else:
        where = "is that of the Spark server" if java is None else str(java)
        yield CheckResult(_SUBJECT, "java", "ok", where)
    try:
        check_extras(needed_extras(config))
    except ConfigError as error:
        yield from failed(_SUBJECT, "packages", error)
    else:
        yield CheckResult(_SUBJECT, "packages", "ok", "all that the configuration needs")
    yield _disk(config, environment)
    yield _memory(config)


def check_at_start(config: Config) -> None:
    """Log what is there, and a sentence for what a batch may run out of. Raises `NoJava`."""
    require_java(config.spark.master)
    log = get_logger()
    found = list(check_machine(config))
    log.info("machine_checked", **{each.check: each.text for each in found if each.result == "ok"})
    for each in found:
        if each.result != "ok":
            log.warning("machine_short", check=each.check, reason=each.text)


def java_notes(config: Config) -> list[str]:
    """Return a note if no batch can run here; the configuration may be for another machine."""
    try:
        require_java(config.spark.master)
    except NoJava as error:
        return [f"{error}; until then no batch runs on this machine"]
    return []


def _disk(config: Config, environment: Mapping[str, str]) -> CheckResult:
    """Compare the free space for temporary files with a batch that waits there."""
    folder = environment.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        text = f"{folder}: {error.strerror}; correct SPARK_LOCAL_DIRS or TMPDIR"
        return CheckResult(_SUBJECT, "disk", "failed", text)
    needed, key = max(_waiting(config), default=(_LEAST_DISK, ""))
    text = f"{free / _GB:,.1f} GB free in {folder}"
    if free >= max(needed, _LEAST_DISK):
        return CheckResult(_SUBJECT, "disk", "ok", text)
    reason = f"{max(needed, _LEAST_DISK) / _GB:,.1f} GB may be needed"
    remedy = f"lower {key}, or " if key and needed > _LEAST_DISK else ""
    text = f"{text}, and {reason}; {remedy}set SPARK_LOCAL_DIRS to a larger disk"
    return CheckResult(_SUBJECT, "disk", "note", text)


def _waiting(config: Config) -> Iterator[tuple[int, str]]:
    """Yield how much of a batch may wait on the disk, and the key that limits it."""
    for name, pipeline in config.pipelines.items():
        by = pipeline.sink.partition_by
        is_sorted = bool(pipeline.sink.sort_by or pipeline.deduplicate_by)
        if is_sorted or (by is not None and (by.column or by.columns)):
            for source_name, source in pipeline.file_sources.items():
                limits = source.advanced.checkpoint
                here = f"pipelines.{name}.sources.{source_name}.advanced.checkpoint"
                yield limits.max_bytes_per_batch, f"{here}.max_bytes_per_batch"


def _memory(config: Config) -> CheckResult:
    """Compare the limit of the container, or the machine, with docs/guides/kubernetes.md."""
    needed = _DRIVER_GB
    if local := _LOCAL.fullmatch(config.spark.master):
        cores = _cores() if local[1] == "*" else int(local[1] or 1)
        heap = _heap_gb(config.spark.conf.get("spark.driver.memory", "1g"))
        needed = heap + _JVM_GB + _DAEMON_GB + _WORKER_GB * cores
    limit = _limit_bytes() / _GB
    text = f"{limit:,.1f} GB, and {needed:,.1f} GB are planned for {config.spark.master}"
    if limit >= needed:
        return CheckResult(_SUBJECT, "memory", "ok", text)
    remedy = "raise the limit, or lower the cores of spark.master (docs/guides/kubernetes.md)"
    return CheckResult(_SUBJECT, "memory", "note", f"{text}; {remedy}")


def _cores() -> int:
    """Return how many cores this process may use. macOS cannot limit them."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def _heap_gb(text: str) -> float:
    found = _HEAP.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2].lower()] if found else 1.0


def _limit_bytes() -> int:
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in _LIMITS:
        try:
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # another version of cgroups, or no limit ("max")
            continue
    return min(limits)
