"""Access to Spark: our defaults, and warnings about the user's settings."""

from __future__ import annotations

import base64
import dataclasses
import pickle
import re
from pathlib import Path

import pytest
from pyspark import cloudpickle

from blizzard_core import redact
from blizzard_core.errors import ConfigError
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.gateway import as_property
from blizzard_py.engines.spark.job_secrets import SECRETS_PROPERTY, strip_secrets
from blizzard_py.engines.spark.masters import settings
from blizzard_py.engines.spark.security import (
    REDACTION,
    SECURE_DEFAULTS,
    require_secured,
    weak_server_settings,
    weak_settings,
)
from blizzard_py.job import Place
from blizzard_py.reading import Access, Reading
from tests.support.ingest_job_harness import IngestJobHarness

IMAGE = {"spark.kubernetes.container.image": "registry/blizzard:1"}
CONNECT_SERVER = {"spark.plugins": "a.B,org.apache.spark.sql.connect.SparkConnectPlugin"}
SECRET = {"spark.authenticate.secret": "of the cluster"}


@pytest.mark.parametrize(
    ("master", "conf"), [("local[2]", {}), ("k8s://api", IMAGE), ("spark://host:1", SECRET)]
)
def test_every_driver_of_ours_is_shut(master: str, conf: dict[str, str]) -> None:
    found = settings(master, conf)
    assert found.items() >= SECURE_DEFAULTS.items()
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert found["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"
    assert found["spark.ui.enabled"] == "false"
    assert list(weak_settings(master, conf)) == []


@pytest.mark.parametrize(
    ("master", "conf", "problem"),
    [
        ("local[2]", {"spark.authenticate": "false"}, "spark.authenticate: must not be false"),
        ("k8s://api", {"spark.authenticate": "False"}, "spark.authenticate: must not be false"),
        ("spark://h:1", {}, r"spark.authenticate.secret: is required .*\$\{NAME\}"),
        ("spark://h:1", {"spark.authenticate.secret": ""}, "secret: is required"),
        ("sc://h", {"spark.sql.variable.substitute": "true"}, "read this daemon's environment"),
        ("local[2]", CONNECT_SERVER, "spark.plugins: must not start a Connect server"),
        (
            "k8s://api",
            {**CONNECT_SERVER, "spark.connect.grpc.binding.address": "0.0.0.0"},
            "spark.plugins: must not start a Connect server",
        ),
    ],
)
def test_unsafe_spark_settings_are_rejected(
    master: str, conf: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        require_secured(master, conf)


def test_disabled_authentication_is_allowed_with_a_warning() -> None:
    conf = {"spark.authenticate": "false"}
    require_secured("spark://h:1", conf)
    (said,) = weak_settings("spark://h:1", conf)
    assert said.startswith("spark.authenticate: anybody who reaches")


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"spark.network.crypto.enabled": "false"}, ["spark.network.crypto.enabled"]),
        ({"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}, []),
        ({"spark.network.crypto.cipher": "AES/CTR/NoPadding"}, ["spark.network.crypto.cipher"]),
        ({"spark.network.crypto.saslFallback": "true"}, ["spark.network.crypto.saslFallback"]),
        ({"spark.driver.bindAddress": "0.0.0.0"}, ["spark.driver.bindAddress"]),
        ({"spark.driver.host": "::1", "spark.driver.bindAddress": "localhost"}, []),
        ({"spark.io.encryption.enabled": "false"}, ["spark.io.encryption.enabled"]),
        ({"spark.ui.enabled": "true"}, ["spark.ui.enabled"]),
        ({"spark.ui.enabled": "true", "spark.ui.filters": "org.example.Login"}, []),
        (
            {**CONNECT_SERVER, "spark.connect.grpc.binding.address": "127.0.0.1"},
            ["spark.plugins"],
        ),
        (
            {"spark.driver.extraJavaOptions": "-agentlib:jdwp=transport=dt_socket,address=*:1"},
            ["spark.driver.extraJavaOptions"],
        ),
        (
            {"spark.executor.defaultJavaOptions": "-Dcom.sun.management.jmxremote.port=1"},
            ["spark.executor.defaultJavaOptions"],
        ),
        (
            {"spark.executor.extraJavaOptions": "-Dp.password=x"},
            ["spark.executor.extraJavaOptions"],
        ),
    ],
)
def test_weak_spark_settings_are_named(conf: dict[str, str], said: list[str]) -> None:
    assert [text.partition(":")[0] for text in weak_settings("local[2]", conf)] == said


def test_the_users_redaction_pattern_is_added_to_ours() -> None:
    told = settings("local[2]", {REDACTION: "[Bb]lood[-_]?[Tt]ype|salary"})[REDACTION]
    for name in (SECRETS_PROPERTY, "my.PASSWORD", "Blood_Type", "salary"):
        assert re.search(told, name)
    assert not re.search(told, "spark.executor.memory")


def test_a_secret_by_its_value_is_left_out_whatever_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redact, "_learnt", set())
    redact.learn_values(["from-a-file-of-secrets"])  # as ${file:…} does
    given = {"my.option": "x=from-a-file-of-secrets", "myXoption": "1", "spark.x": "a"}
    told = settings("local[2]", given)[REDACTION]
    assert [name for name in given if re.search(told, name)] == ["my.option"]
    assert "from-a-file" not in told


@pytest.mark.parametrize(
    ("url", "server", "said"),
    [
        ("sc://127.0.0.1:1", SECURE_DEFAULTS, []),
        ("sc://[::1]:1", SECURE_DEFAULTS, []),
        ("sc://spark.example.com", SECURE_DEFAULTS, ["spark.master"]),
        ("sc://spark.example.com:1/;use_ssl=true", SECURE_DEFAULTS, []),
        ("sc://spark.example.com:1/;token=hush", SECURE_DEFAULTS, []),
        ("sc://localhost", {}, ["spark.authenticate"]),
        ("sc://localhost", {"spark.authenticate": "true"}, ["spark.network.crypto.enabled"]),
    ],
)
def test_weak_server_settings_are_named(url: str, server: dict[str, str], said: list[str]) -> None:
    found = list(weak_server_settings(url, server.get))
    assert [text.partition(":")[0] for text in found] == said
    assert "hush" not in str(found)


def test_a_jobs_closure_holds_no_credential(tmp_path: Path) -> None:
    job = IngestJobHarness(tmp_path).job()
    access = Access("postgresql", "postgresql://u:hush-4@h/d", {"password": "hush-3"})
    job = dataclasses.replace(
        job,
        settings=dataclasses.replace(
            job.settings,
            source=Place("s3://raw", {"secret": "hush-1"}),
            sink=Place("s3://lake", {"secret": "hush-2"}),
        ),
        reading=Reading(access, {}),
    )
    assert b"hush" in cloudpickle.dumps(job)
    bare, secrets = strip_secrets(job)
    assert b"hush" not in cloudpickle.dumps(bare)
    assert bare.settings.source == Place("s3://raw")
    assert all(f"hush-{number}".encode() in pickle_of(secrets) for number in (1, 2, 3, 4))
    # An ordinary job has no connection.
    assert strip_secrets(dataclasses.replace(job, reading=None))[0].reading is None


def pickle_of(value: str) -> bytes:
    found = base64.b64decode(value)
    assert pickle.loads(found) is not None  # ours
    return found


@pytest.mark.parametrize(
    "value", ["", "a=b:c", " led and trailed ", "# !\\n\n\té€\U0001f600", "\\u0041"]
)
def test_java_properties_preserve_every_value(spark_engine: SparkEngine, value: str) -> None:
    jvm = spark_engine.session().sparkContext._jvm  # noqa: SLF001  # no public name
    found = jvm.java.util.Properties()
    found.load(jvm.java.io.StringReader(f"{as_property('a key')}={as_property(value)}\n"))
    assert found.getProperty("a key") == value


def test_the_jvms_command_line_names_files_and_nothing_else(spark_engine: SparkEngine) -> None:
    gateway = spark_engine.session().sparkContext._gateway  # noqa: SLF001  # no public name
    command = Path(f"/proc/{gateway.proc.pid}/cmdline").read_text().split("\0")
    assert "--conf" not in command
    assert "--properties-file" in command
    assert not [word for word in command if "postgresql" in word]  # our own spark.jars
