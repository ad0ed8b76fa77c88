"""Checks of the container image without a build; `make image-test` builds it."""

from __future__ import annotations

import http.server
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from blizzard_core.observability.probe import main, probe
from blizzard_core.settings.load import load_config
from blizzard_py.engines.spark.executor import NotAnExecutorError, command

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "deploy" / "image" / "install-packages"


def stages() -> list[list[str]]:
    """Return the instructions of each stage, continuation lines joined; arguments come first."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found: list[list[str]] = [[]]
    for line in filter(None, (" ".join(line.split()) for line in lines)):
        if line.startswith("FROM "):
            found.append([])
        found[-1].append(line)
    return found


def test_both_stages_start_from_a_pinned_base_argument() -> None:
    arguments, build, final = stages()
    assert arguments == ["ARG BASE=debian:12.15-slim", "ARG BUILD_BASE=${BASE}"]
    assert build[0] == "FROM ${BUILD_BASE} AS build"
    assert final[0] == "FROM ${BASE}"


def test_final_stage_is_unprivileged_without_tools() -> None:
    *_, final = stages()
    copied = [line for line in final if line.startswith("COPY ")]
    assert "COPY --from=build /opt/venv /opt/venv" in copied
    assert not any("requirements" in line or "wheel" in line for line in copied)
    installed = re.findall(r"RUN install-packages ([^&]*)&&", " ".join(final))
    assert [part.split() for part in installed] == [
        ["python3", "${JRE}", "tini", "ca-certificates"]
    ]
    users = [line for line in final if line.startswith("USER ")]
    assert users == ["USER 10001:10001"]
    assert final.index(users[0]) > max(i for i, line in enumerate(final) if line.startswith("RUN "))
    assert 'ENTRYPOINT ["tini", "--"]' in final


def test_everything_is_installed_from_the_lock() -> None:
    _, build, _ = stages()
    parts = [part for line in build for part in line.split("&&")]
    installs = [part for part in parts if "pip install " in part]
    assert len(installs) == 3
    assert all("--require-hashes" in each for each in installs[:2])
    assert "--no-deps" in installs[2]


def test_index_configuration_is_a_secret_without_host_names() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "--mount=type=secret,id=pip" in text
    assert "PIP_CONFIG_FILE=/run/secrets/pip" in text
    assert not re.search(r"https?://|index-url|trusted-host|\b(ARG|ENV) \w*(TOKEN|PASSWORD)", text)


def test_the_image_has_the_runtime_lock_and_azure() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==\S+", (ROOT / name).read_text(), flags=re.MULTILINE))

    assert pins("requirements.lock") < pins("requirements-image.lock")
    assert pins("requirements-image.lock") <= pins("requirements-dev.lock")
    assert any(pin.startswith("adlfs==") for pin in pins("requirements-image.lock"))


def test_build_context_holds_only_copied_files() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    seen = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copies = [
        shlex.split(line)[1:-1]
        for stage in stages()
        for line in stage
        if line.startswith("COPY ") and "--from" not in line
    ]
    sources = {name for line in copies for name in line}
    assert all(any(fnmatch(name, source) for name in seen) for source in sources)
    assert all(any(fnmatch(name, source) for source in sources) for name in seen)
    assert all((ROOT / name).exists() for name in seen - {"wheels"})


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """Make a folder of stand-ins for PATH: only python3 is installed."""
    for name, body in {
        "dpkg-query": '[ "$3" = python3 ] && echo "install ok installed"',
        "apt-get": 'echo "$*" >>"$LOG"',
        "mkdir": "",
        "rm": "",
    }.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return tmp_path


def installed(debian: Path, *packages: str) -> list[str]:
    log = debian / "log"
    subprocess.run(
        [INSTALL, *packages],
        env={"PATH": f"{debian}:/usr/bin:/bin", "LOG": str(log)},
        check=True,
        timeout=60,
    )
    return log.read_text().splitlines() if log.exists() else []


def test_installed_packages_need_no_network(debian: Path) -> None:
    assert installed(debian, "python3") == []
    assert installed(debian, "python3", "tini") == [
        "update",
        "install --yes --no-install-recommends tini",
    ]


def config_file(folder: Path, address: str | None) -> Path:
    pipeline = {
        "sources": {"main": {"source_uri": str(folder / "raw")}},
        "sink": {"table_uri": str(folder / "lake")},
        "schema": {"fields": [{"name": "n", "type": "int64"}]},
    }
    document: dict[str, object] = {"pipelines": {"events": pipeline}}
    if address is not None:
        document["metrics"] = {"address": address}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    load_config(path)
    return path


@contextmanager
def answering(status: int) -> Iterator[tuple[str, list[str]]]:
    """Run a health page; yield its address and the requested paths."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"reasons": ["events/main hangs"]}')

        def log_message(self, *arguments: object) -> None:
            """Keep the test's output clean."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"0.0.0.0:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "alive"), [(200, True), (503, False), (404, False)])
def test_the_health_check_asks_the_daemon(tmp_path: Path, status: int, alive: bool) -> None:
    with answering(status) as (address, asked):
        found, reason = probe(config_file(tmp_path, address))
    assert asked == ["/health"]
    assert found is alive
    assert "events/main hangs" in reason


def test_health_check_fails_without_an_answer(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        alive, reason = probe(config_file(tmp_path, address))
    assert not alive
    assert address in reason


def test_the_health_check_asks_whichever_daemon_is_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        for status, alive in ((200, True), (503, False)):
            with answering(status) as (address, _asked):
                config = config_file(tmp_path, nobody)
                text = config.read_text().replace(nobody, f"{nobody}\n  penguin_address: {address}")
                config.write_text(text)
                assert probe(config)[0] is alive


def test_health_check_passes_without_metrics_or_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(str(config_file(tmp_path, None))) == 0
    assert "metrics.address is not set" in capsys.readouterr().out
    assert main(str(tmp_path / "elsewhere.yaml")) == 0
    assert "not there" in capsys.readouterr().out


def test_invalid_configuration_is_unhealthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "config.yaml"
    broken.write_text("pipelines: 3")
    assert main(str(broken)) == 1
    assert "pipelines" in capsys.readouterr().out


ASKED = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@blizzard-driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "blizzard-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_CLASSPATH": "",
    **{f"SPARK_JAVA_OPT_{number}": f"-D{number}=a b" for number in range(12)},
}


def test_an_executor_gets_its_command_line() -> None:
    home = Path("/venv/pyspark")
    found = command(ASKED, home)
    assert found == [
        "java",
        *(f"-D{number}=a b" for number in range(12)),
        "-Xms1024m",
        "-Xmx1024m",
        "-cp",
        "/opt/spark/conf:/venv/pyspark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@blizzard-driver:7078"),
        *("--executor-id", "3"),
        *("--cores", "4"),
        *("--app-id", "spark-1"),
        *("--hostname", "10.0.0.7"),
        *("--resourceProfileId", "0"),
        *("--podName", "blizzard-exec-3"),
    ]
    assert command({**ASKED, "JAVA_HOME": "/jvm"}, home)[0] == "/jvm/bin/java"


def test_process_not_started_by_spark_is_no_executor() -> None:
    with pytest.raises(NotAnExecutorError, match="SPARK_DRIVER_URL"):
        command({**ASKED, "SPARK_DRIVER_URL": ""}, Path("/venv/pyspark"))
    done = subprocess.run(
        [sys.executable, "-m", "blizzard_py.engines.spark.executor"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: Spark sets these for an executor: SPARK_")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [("", True), ("--build-arg BASE=debian:13.1-slim", True),
     (f"--build-arg BASE=debian:12.15-slim@sha256:{'0' * 64}", False)],
)  # fmt: skip
def test_unpinned_base_is_reported(tmp_path: Path, arguments: str, *, told: bool) -> None:
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@"\n')
    docker.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "image", f"ARGS={arguments}"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("build -t blizzard-penguin")
    assert ("BASE is a tag" in done.stderr) is told
