"""Spark's own servers from the installed package: a standalone cluster, a Connect server."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from blizzard_py.engines.spark.security import SECURE_DEFAULTS
from tests.support.own_process import free_port
from tests.support.pipe import PIPES
from tests.support.short_lived_java import SHORT_LIVED

HOME = Path(pyspark.__file__).parent
_SMALL = f"-XX:+UseSerialGC {SHORT_LIVED}"
_DAEMONS = {"SPARK_DAEMON_JAVA_OPTS": _SMALL, "SPARK_DAEMON_MEMORY": "256m"}


@dataclass(frozen=True)
class Cluster:
    """A standalone master; ``conf`` is what a driver needs on this machine."""

    master: str
    conf: dict[str, str]


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, workers: int = 2, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a master and some workers of one core each, on the loopback interface, with a secret.

    ``settings`` win over ours, which shut all that they can.
    """
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    secret = secrets.token_hex(32)
    shut = {**SECURE_DEFAULTS, "spark.authenticate.secret": secret, **(settings or {})}
    told = folder / "cluster.conf"
    told.touch(0o600)
    told.write_text("".join(f"{key} {value}\n" for key, value in shut.items()))
    common = ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(told))
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            _server(
                folder,
                port,
                *("org.apache.spark.deploy.master.Master", *common, "--port", str(port)),
            )
        )
        for number in range(workers):
            work = folder / f"worker-{number}"
            stack.enter_context(
                _server(
                    folder,
                    None,
                    "org.apache.spark.deploy.worker.Worker",
                    *common,
                    *("--cores", "1", "--memory", "512m", "--work-dir", str(work)),
                    master,
                )
            )
        yield Cluster(
            master,
            {
                "spark.authenticate.secret": secret,
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": _SMALL,
                "spark.pyspark.python": sys.executable,
            },
        )


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server with a local master of two cores; yield its ``sc://`` URL."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        **SECURE_DEFAULTS,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.local.dir": str(folder),
    }
    with _server(
        folder,
        port,
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(
            "--master",
            "local[2,3]",
        ),
        *(part for key, value in conf.items() for part in ("--conf", f"{key}={value}")),
        "spark-internal",
    ):
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def _server(folder: Path, port: int | None, *arguments: str) -> Iterator[None]:
    """One process, with all that it starts, in a session of its own that ends with it.

    With ``port`` the block begins when it listens there.
    """
    environment = {
        # Not this process's PYTHONPATH: the package has to arrive by itself.
        **os.environ,
        "PYTHONPATH": PIPES,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **({} if arguments[0].endswith("SparkSubmit") else _DAEMONS),
        "SPARK_DRIVER_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / "servers.log").open("ab") as log:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        if port is not None:
            _wait_for(port, process)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    while True:
        assert process.poll() is None, "the server ended; see servers.log"
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        pause.wait(0.05)
