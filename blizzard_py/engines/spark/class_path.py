"""The jars that a driver has on its class path.

Java opens every jar to find that none has a certain file, and then keeps the directories of all in
its heap: 17 MB for the jars of Spark. A driver that only hands out tasks has no use for queries,
Hive, Kubernetes and machine learning, which are 9 MB of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

# Begins of the names of jars without which tasks on this machine are handed out. Everything that
# Spark's core names stays, and so do jars that a user has put beside Spark's.
_UNUSED = re.compile(
    "algebra|antlr|arpack|arrow|blas|breeze|cats|curator|datanucleus|datasketches|derby|flatbuffers"
    "|HikariCP|hive|icu4j|janino|javax.jdo|jdo|joda|JTransforms|jts|kubernetes|lapack|libthrift|orc"
    "|parquet|scala-compiler|spire|univocity|vertx|volcano|zjsonpatch|zookeeper"
    "|spark-(catalyst|connect|graphx|hive|kubernetes|mllib|pipelines|repl|sketch|sql|streaming"
    "|variant|yarn)"
)
# With one of them other jars, or settings that are not known here, may be on the class path.
_VARIABLES = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_HOME",
    "SPARK_PREPEND_CLASSES",
    "YARN_CONF_DIR",
)
_ADDS_JARS = re.compile("[jJ]ars|[pP]ackages|[cC]lassPath")
# Such as a listener or a plugin, which may use any other.
_CLASS_NAME = re.compile(r"(?:\b[a-z]\w*\.)+[A-Z]\w*")


def all_jars() -> list[Path]:
    """Return the jars of the installed pyspark, in one order."""
    return sorted(_home().glob("jars/*.jar"))


def task_jars(conf: Mapping[str, str], environment: Mapping[str, str]) -> list[Path] | None:
    """Return the jars of a local driver that only hands out tasks.

    None where all are needed, or not known here: the user has another Spark, jars or classes.
    """
    if any(environment.get(name) for name in _VARIABLES) or (_home() / "conf").exists():
        return None
    if any(_ADDS_JARS.search(key) or _CLASS_NAME.search(text) for key, text in conf.items()):
        return None
    return [jar for jar in all_jars() if not _UNUSED.match(jar.name)]


def class_path_option(jars: Sequence[Path]) -> list[str]:
    """Return the options of such a class path; the last one that a JVM gets counts."""
    return ["-cp", ":".join(map(str, jars))]


def has_queries(class_path: str) -> bool:
    """Return whether a JVM with that class path can run queries."""
    return "spark-sql_" in class_path


def _home() -> Path:
    return Path(pyspark.__file__).parent
