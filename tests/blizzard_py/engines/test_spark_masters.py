"""Spark's configuration for a master URL, and the error for an unreachable one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError, EngineError
from blizzard_py.engines.spark.engine import SparkEngine
from blizzard_py.engines.spark.failures import DataFailure, find_failing_files
from blizzard_py.engines.spark.masters import addresses, kubernetes_settings, settings
from blizzard_py.job import JobFile
from tests.support.ingest_job_harness import IngestJobHarness, lines

IMAGE = {"spark.kubernetes.container.image": "registry/blizzard:1"}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", []),
        ("spark://a:1", [("a", 1)]),
        ("spark://a,b:2", [("a", 7077), ("b", 2)]),
        ("k8s://https://api:6443", [("api", 6443)]),
        ("k8s://api", [("api", 443)]),
        ("k8s://http://api", [("api", 80)]),
        ("sc://h", [("h", 15002)]),
        ("sc://h:3/;token=secret;use_ssl=true", [("h", 3)]),
        ("sc://[::1]:3", [("::1", 3)]),
    ],
)
def test_addresses_of_a_master(master: str, expected: list[tuple[str, int]]) -> None:
    assert list(addresses(master)) == expected


@pytest.mark.parametrize("master", ["spark://", "spark://h:port", "yarn://x"])
def test_a_master_without_an_address_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match="names no host and port"):
        list(addresses(master))


def test_kubernetes_needs_an_image() -> None:
    with pytest.raises(ConfigError, match=r"spark\.kubernetes\.container\.image: is required"):
        settings("k8s://https://api:6443", {})


def test_a_driver_in_a_pod_is_reachable_and_owns_its_executors() -> None:
    pod = {"POD_IP": "10.0.0.7", "POD_NAME": "blizzard-0", "POD_NAMESPACE": "data"}
    found = settings("k8s://https://api:6443", {**IMAGE, "spark.executor.instances": "3"}, pod)
    assert (
        found.items()
        >= {
            "spark.driver.host": "10.0.0.7",
            "spark.driver.bindAddress": "0.0.0.0",
            "spark.kubernetes.driver.pod.name": "blizzard-0",
            "spark.kubernetes.executor.podNamePrefix": "blizzard-0",
            "spark.kubernetes.namespace": "data",
            "spark.executor.instances": "3",
            "spark.scheduler.mode": "FAIR",
            **IMAGE,
        }.items()
    )
    assert kubernetes_settings({}) == {}
    mine = {**IMAGE, "spark.driver.host": "blizzard.data.svc"}
    assert settings("k8s://api", mine, pod)["spark.driver.host"] == "blizzard.data.svc"


@pytest.mark.parametrize("scheme", ["spark", "sc", "k8s"])
def test_unreachable_master_raises_engine_error(tmp_path: Path, scheme: str) -> None:
    world = IngestJobHarness(tmp_path)
    world.put("a.ndjson", lines(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    conf = {"k8s": IMAGE, "spark": {"spark.authenticate.secret": "hush"}}.get(scheme, {})
    engine = SparkEngine(f"{scheme}://127.0.0.1:{port}", conf)
    with pytest.raises(EngineError, match=f"cannot be reached.*127.0.0.1:{port}: .*refused"):
        world.ingest(engine=engine)


def test_a_connect_token_stays_out_of_errors(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path)
    world.put("a.ndjson", lines(1))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(EngineError) as caught:
        world.ingest(engine=SparkEngine(f"sc://127.0.0.1:{port}/;token=hush"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {3, 4}, set(range(7))])
def test_culprits_are_found_by_halving(bad: set[int]) -> None:
    files = [JobFile(str(number), 1) for number in range(7)]
    tried: list[int] = []

    def attempt(some: object) -> None:
        assert isinstance(some, list)
        tried.append(len(some))
        here = sorted(int(file.path) for file in some if int(file.path) in bad)
        if here:
            raise DataFailure(f"row of {here[0]}")

    found = find_failing_files(files, "as a whole", attempt)
    assert found == {str(number): f"row of {number}" for number in sorted(bad)}
    assert len(tried) <= 2 * max(1, len(bad)) * 3
