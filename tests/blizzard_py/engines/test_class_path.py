from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from blizzard_py.engines.spark.class_path import all_jars, has_queries, task_jars
from blizzard_py.engines.spark.gateway import _files
from blizzard_py.engines.spark.masters import settings
from blizzard_py.engines.spark.worker_daemon import without_archives

LOCAL = {"spark.master": "local[2,3]", **settings("local[2]", {})}


def products(jars: list[Path] | None) -> set[str]:
    return {jar.name.partition("_2.13")[0] for jar in jars if jar.name.startswith("spark-")}


def test_a_driver_of_tasks_has_sparks_core_and_no_queries() -> None:
    found = task_jars(LOCAL, {})
    assert {"spark-core", "spark-launcher", "spark-network-common", "spark-unsafe"} <= products(
        found
    )
    assert not products(found) & {"spark-sql", "spark-catalyst", "spark-hive", "spark-kubernetes"}
    assert sum(jar.name.startswith(("hadoop-client", "py4j", "avro-")) for jar in found) >= 4


def classes_in(jar: Path) -> Iterator[str]:
    return (name for name in ZipFile(jar).namelist() if name.endswith(".class"))


def test_classes_that_tasks_need_name_none_of_another_jar() -> None:
    """Java would notice only when it looks for one of them."""
    kept = task_jars(LOCAL, {}) or []
    others = {name[:-6].encode() for jar in set(all_jars()) - set(kept) for name in classes_in(jar)}
    known = ("Curator", "ZooKeeper", "FaultTolerance", "Collation", "VariantVal", "UTF8String")
    others -= {name[:-6].encode() for jar in kept for name in classes_in(jar)}
    missed = set()
    for jar in (jar for jar in kept if jar.name.startswith(("spark-", "py4j", "json4s"))):
        with ZipFile(jar) as archive:
            for name in classes_in(jar):
                named = set(re.findall(rb"(?:org|com|io|net|scala)/[\w/$]+", archive.read(name)))
                if named & others and not any(word in name for word in known):
                    missed.add(name)
    assert not missed


@pytest.mark.parametrize(
    ("conf", "environment"),
    [
        ({}, {"SPARK_HOME": "/opt/spark"}),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--jars mine.jar pyspark-shell"}),
        ({"spark.driver.extraClassPath": "/mine/*"}, {}),
        ({"spark.jars.packages": "org:plugin:1"}, {}),
        ({"spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener"}, {}),
    ],
)
def test_a_driver_with_more_classes_has_all_jars(
    conf: dict[str, str], environment: dict[str, str]
) -> None:
    assert task_jars({**LOCAL, **conf}, environment) is None


def test_which_jvm_can_run_queries_is_seen_by_its_class_path() -> None:
    assert has_queries(":".join(map(str, all_jars())))
    assert not has_queries(":".join(map(str, task_jars(LOCAL, {}) or [])))


@pytest.mark.parametrize(
    ("classes", "master", "options", "is_short"),
    [
        ("tasks", "local[2,3]", "", True),
        ("queries", "local[2,3]", "", False),
        ("tasks", "k8s://https://api:443", "", False),
        ("tasks", "local[2,3]", "-XX:SharedArchiveFile=/of-all-jars.jsa", False),
    ],
)
def test_a_class_path_is_short_only_where_tasks_are_local(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    classes: str,
    master: str,
    options: str,
    is_short: bool,
) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    conf = {**LOCAL, "spark.master": master, "spark.driver.extraJavaOptions": options}
    _files(tmp_path, conf, tmp_path, classes)  # type: ignore[arg-type]  # a literal
    assert ('"-cp"\n' in (tmp_path / "jvm.options").read_text()) is is_short


def test_workers_import_pyspark_from_a_folder_where_there_is_one(tmp_path: Path) -> None:
    archives = ["/s/python/lib/pyspark.zip", "/s/python/lib/py4j-0.10.9.9-src.zip"]
    path = [*archives, "/s/jars/spark-core_2.13-4.3.0.jar", "/usr/lib/python311.zip", str(tmp_path)]
    assert without_archives(path) == path
    (tmp_path / "pyspark").mkdir()
    assert without_archives(path) == path[3:]
