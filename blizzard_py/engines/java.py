"""The Java that Spark would start: where it is and its version, without starting it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from blizzard_core.errors import NoJava

# Spark 4 runs on no older one.
OLDEST = 17

_INSTALL = (
    f"install Java {OLDEST} or newer (Debian, Ubuntu: apt install openjdk-{OLDEST}-jre-headless;"
    f" macOS: brew install openjdk@{OLDEST}), or set JAVA_HOME to one"
)
# JAVA_VERSION="17.0.15" in a file of the installation, `openjdk version "1.8.0_392"` on stderr.
_RELEASE = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED = re.compile(r'version "([^"]+)"')
_START_SECS = 20


@dataclass(frozen=True, slots=True)
class Java:
    """A Java and its version; an empty version is unknown."""

    path: Path
    version: str

    def __str__(self) -> str:
        return f"{self.version or 'unknown version'} ({self.path})"


def java_path(environment: Mapping[str, str]) -> Path | None:
    """Return the program that Spark's scripts start; None if there is none."""
    home = environment.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        return path if os.access(path, os.X_OK) else None
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return None if found is None else Path(found)


def require_java(master: str, environment: Mapping[str, str] = os.environ) -> Java | None:
    """Return the Java that runs Spark for ``master``; None if none is needed, or not known here.

    A Spark Connect server has its own. A ``spark-env.sh`` may choose one that nobody else knows.
    Raises `NoJava` in one sentence.
    """
    if master.startswith("sc://") or "PYSPARK_GATEWAY_PORT" in environment:
        return None
    if _has_spark_environment(environment):
        return None
    path = java_path(environment)
    if path is None:
        raise NoJava(_searched(environment))
    version = _version(path)
    major = _major(version)
    if major is not None and major < OLDEST:
        raise NoJava(f"{path} is Java {version}, and Spark needs {OLDEST} or newer; {_INSTALL}")
    return Java(path, version)


def _has_spark_environment(environment: Mapping[str, str]) -> bool:
    home = environment.get("SPARK_HOME", "")
    conf = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    return bool(conf) and Path(conf, "spark-env.sh").is_file()


def _searched(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    if home:
        return (
            f"there is no Java at {home}/bin/java, where JAVA_HOME says it is; correct JAVA_HOME,"
            f" or unset it to use the one of PATH"
        )
    folders = environment.get("PATH", os.defpath)
    return f"there is no Java: JAVA_HOME is not set, and PATH ({folders}) has none; {_INSTALL}"


def _version(path: Path) -> str:
    try:
        release = (path.resolve().parents[1] / "release").read_text(errors="replace")
        if found := _RELEASE.search(release):
            return found[1]
    except OSError:
        pass
    try:
        printed = subprocess.run(  # noqa: S603  # the program that Spark starts
            [path, "-version"], capture_output=True, text=True, timeout=_START_SECS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _PRINTED.search(printed)
    return found[1] if found else ""


def _major(version: str) -> int | None:
    """Return 17 of ``17.0.15`` and 8 of ``1.8.0_392``."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) == 2 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else None
