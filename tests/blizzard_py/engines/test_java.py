"""The Java that Spark would start, found without starting it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from blizzard_core.errors import EngineError, NoJava
from blizzard_py.engines.java import require_java
from blizzard_py.engines.spark import gateway
from tests.support.captured_logs import captured_logs


def java(folder: Path, release: str | None = None, prints: str = "") -> Path:
    """A directory with ``bin/java``, as installations have it."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return program


def test_java_is_found_as_spark_finds_it(tmp_path: Path) -> None:
    on_path = java(tmp_path / "path", "21.0.1")
    at_home = java(tmp_path / "home", "17.0.15")
    path = {"PATH": f"/nowhere:{on_path.parent}"}
    assert str(require_java("local", path)) == f"21.0.1 ({on_path})"
    home = {**path, "JAVA_HOME": str(tmp_path / "home")}
    assert str(require_java("local[4]", home)) == f"17.0.15 ({at_home})"
    assert require_java("spark://host:7077", {**path, "JAVA_HOME": ""}) is not None


def test_a_link_leads_to_the_version(tmp_path: Path) -> None:
    real = java(tmp_path / "jvm", "25.0.3")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real)
    found = require_java("local", {"PATH": str(tmp_path / "bin")})
    assert found.version == "25.0.3"


@pytest.mark.parametrize(
    ("release", "prints"),
    [
        ("11.0.22", ""),
        (None, 'openjdk version "1.8.0_392"'),
        (None, 'openjdk version "16" 2021-03-16'),
    ],
)
def test_an_older_java_is_refused(tmp_path: Path, release: str | None, prints: str) -> None:
    program = java(tmp_path, release, prints)
    with pytest.raises(NoJava) as caught:
        require_java("local", {"JAVA_HOME": str(tmp_path)})
    text = str(caught.value)
    assert text.startswith(f"{program} is Java 1")
    assert "Spark needs 17 or newer; install Java 17" in text
    assert "\n" not in text


def test_a_version_that_is_unknown_is_tried(tmp_path: Path) -> None:
    java(tmp_path, None, "something else")
    assert "unknown version" in str(require_java("local", {"JAVA_HOME": str(tmp_path)}))


def test_the_message_says_where_java_was_searched() -> None:
    with pytest.raises(NoJava, match=r"JAVA_HOME is not set, and PATH \(/a:/b\) has none; install"):
        require_java("local", {"PATH": "/a:/b"})
    with pytest.raises(NoJava, match=r"no Java at /a/bin/java, where JAVA_HOME says it is"):
        require_java("local", {"PATH": os.environ["PATH"], "JAVA_HOME": "/a"})


def test_no_java_is_needed_where_another_runs_it(tmp_path: Path) -> None:
    none = {"PATH": "/nowhere"}
    assert require_java("sc://host:15002", none) is None
    assert require_java("local", {**none, "PYSPARK_GATEWAY_PORT": "1"}) is None
    # Such a script may set JAVA_HOME.
    (tmp_path / "spark-env.sh").write_text("export JAVA_HOME=/opt/java\n")
    assert require_java("local", {**none, "SPARK_CONF_DIR": str(tmp_path)}) is None


def test_a_jvm_that_does_not_start_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(_conf: None, options: dict[str, int]) -> None:
        lines = (
            "Picked up JAVA_TOOL_OPTIONS: -Dpassword=hunter22",
            "Error occurred during initialization of VM",
            "Too small maximum heap",
            "/opt/spark/bin/spark-class: line 97: CMD: bad array subscript",
        )
        os.write(options["stderr"], "\n".join(lines).encode())
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with captured_logs("info") as logs, pytest.raises(EngineError) as caught:
        gateway.open_gateway({}, tmp_path)
    assert str(caught.value) == (
        "the JVM did not start: Error occurred during initialization of VM / Too small maximum"
        " heap; check spark.conf, JAVA_TOOL_OPTIONS and the memory of this machine"
    )
    assert not [each for each in logs if each["level"] == "warning"]
