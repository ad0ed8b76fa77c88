"""The entry point of Spark executors on Kubernetes.

``python -m blizzard_py.engines.spark.executor``: Spark's scheduler starts an executor's container
with its parameters in environment variables. The image must have a program that turns them into
Spark's command line. Spark's own images have a shell script for that; pyspark from the package
index, on which our image is based, has none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
# Names and values as in Spark's BasicExecutorFeatureStep.
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class NotAnExecutorError(Exception):
    """The environment is not the one that Spark sets for an executor."""


def command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """Return the executor's command line.

    Raises `NotAnExecutorError` if the environment lacks a part.
    """
    wanted = ["SPARK_EXECUTOR_MEMORY", *_ARGUMENTS.values()]
    missing = [name for name in wanted if not environment.get(name)]
    if missing:
        raise NotAnExecutorError(f"Spark sets these for an executor: {', '.join(missing)}")
    java_home = environment.get("JAVA_HOME")
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    numbered = sorted(
        (int(name.removeprefix(_OPTION)), value)
        for name, value in environment.items()
        if name.startswith(_OPTION)
    )
    places = (
        environment.get("SPARK_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),
        str(spark_home / "jars" / "*"),
    )
    return [
        str(Path(java_home) / "bin" / "java") if java_home else "java",
        *(option for _, option in numbered),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(place for place in places if place),
        _BACKEND,
        *(part for name, variable in _ARGUMENTS.items() for part in (name, environment[variable])),
    ]


def main() -> None:
    """Replace this process by the executor."""
    spark_home = Path(pyspark.__file__).parent
    try:
        arguments = command(os.environ, spark_home)
    except NotAnExecutorError as error:
        sys.exit(f"error: {error}")
    os.environ["SPARK_HOME"] = str(spark_home)
    os.execvp(arguments[0], arguments)  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main()
