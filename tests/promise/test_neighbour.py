"""Another user of the machine, without rights, gets nothing from a running daemon.

The daemon is a real one with secrets wherever secrets can be: options of stores, Spark's
settings, the JVM's options, the environment, records that nobody could read.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.storage.opening import open_storage
from blizzard_py.engines.spark.job_secrets import SECRETS_PROPERTY
from tests.support import neighbour
from tests.support.s3_server import S3Server
from tests.support.scenario import ROOT

WAIT_SECS = 150

# Spark as it comes, with a secret in a closure; in the clear, to be told by its text. The task
# goes on for ever: Spark may drop the closure's block as soon as its stage is over.
OPEN_SPARK = """
import sys, time
from pathlib import Path
from pyspark import SparkConf, SparkContext
secret, begun = sys.stdin.readline().split()
plain = SparkConf().set("spark.broadcast.compress", "false")
context = SparkContext("local[1]", "open", conf=plain)

def work(number):
    Path(begun).touch()
    time.sleep(3600)
    return number, secret

context.parallelize([1], 1).map(work).collect()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder that any user may read; pytest's own belongs to one user."""
    folder = Path(tempfile.mkdtemp(prefix="neighbour-", dir="/tmp"))  # shared, as meant
    folder.chmod(0o755)
    folder.joinpath("tmp").mkdir()
    folder.joinpath("tmp").chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_nobody(asked: dict[str, Any]) -> dict[str, Any]:
    """Run `neighbour` as another user. Fail where the test cannot become another user."""
    command = [sys.executable, "-I", str(Path(neighbour.__file__))]
    if os.geteuid() != 0:
        command = ["sudo", "-n", "-u", "nobody", *command]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=500,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")
        pytest.fail(f"needs root, or sudo without a password, to be another user: {error} {said}")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["uid"] != os.geteuid()
    return found


def descendants(pid: int) -> list[int]:
    """Return the process and all its descendants that still run."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def inodes(pids: list[int]) -> set[str]:
    """Return the ports of the processes' sockets."""
    held = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = str(descriptor.readlink())
            except OSError:
                continue
            held.update(re.findall(r"^socket:\[(\d+)\]$", name))
    return held


def listening(pids: list[int]) -> dict[int, str]:
    """Ports that the processes listen on, and the addresses as the kernel writes them."""
    held, found = inodes(pids), {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in held:
                address, _, port = columns[1].partition(":")
                found[int(port, 16)] = address
    return found


def socket_paths(pids: list[int]) -> list[str]:
    """Return the sockets in the file system on which the processes listen."""
    held, found = inodes(pids), []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        columns = line.split()
        if len(columns) > 7 and columns[6] in held and columns[7].startswith("/"):
            found.append(columns[7])
    return found


def wait_for(process: subprocess.Popen[str], what: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(WAIT_SECS * 10):
        assert process.poll() is None, "the process has ended"
        if what():
            return
        pause.wait(0.1)
    pytest.fail("it did not come to it in time")


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Stop the process and its children after the block."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def configuration(place: Path, bucket: str, options: dict[str, str], hush: list[str]) -> Path:
    config = place / "config.yaml"
    config.touch(0o600)
    document = {
        "pipelines": {
            "events": {
                "sources": {
                    "main": {
                        "source_uri": bucket,
                        "poll_interval": "1s",
                        "storage_options": {**options, "AWS_SECRET_ACCESS_KEY": "${HUSH}"},
                    }
                },
                "sink": {"table_uri": str(place / "table")},
                "schema": {"fields": [{"name": "id", "type": "int64"}]},
                "error_handling": {"max_bad_fraction": 1.0},
            }
        },
        "spark": {
            "master": "local[1]",
            "conf": {
                "spark.hadoop.fs.s3a.secret.key": hush[1],
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": f"file://{place}/tmp/events",
                "spark.driver.extraJavaOptions": (
                    f"-Dproxy.password={hush[2]} -Dodd='two words, \"quoted\" \\ and more'"
                ),
            },
        },
        "metrics": {"address": "127.0.0.1:0"},
    }
    config.write_text(yaml.safe_dump(document))
    return config


@pytest.mark.timeout(600)
def test_a_neighbour_gets_nothing_of_a_daemon(place: Path, s3: S3Server) -> None:
    hush = [f"hush-{number}-{secrets.token_hex(16)}" for number in range(5)]
    bucket = f"s3://{s3.new_bucket()}"
    lines = b'{"id":1}\n{"id":"%s"}\n' % hush[3].encode()
    open_storage(bucket, s3.options).put_atomic("a.ndjson", lines)
    events = place / "tmp" / "events"
    events.mkdir()
    config = configuration(place, bucket, s3.options, hush)
    environment = {**os.environ, "HUSH": hush[0], "OTHER": hush[4], "TMPDIR": f"{place}/tmp"}
    log = place / "tmp" / "daemon.log"
    with log.open("w") as output:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "blizzard_py", "run", str(config)],
            cwd=ROOT, env=environment, stdout=output, stderr=output, text=True,
        )  # fmt: skip
    table = place / "table"
    letters = table / "_blizzard" / "dlq"
    with ended(daemon):
        wait_for(daemon, lambda: [*table.glob("*.parquet")] and [*letters.rglob("*.ndjson*")])
        pids = descendants(daemon.pid)
        ports = listening(pids)
        sockets = socket_paths(pids)
        held = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        found = as_nobody(
            {
                "pids": pids,
                "ports": list(ports),
                "sockets": sockets,
                "folders": [str(place), *map(str, Path("/tmp").glob("hsperfdata_*"))],  # the JVM's
                "secrets": hush,
            }
        )
    assert "java" in held
    # The gateway, the driver and its blocks, all on the loopback interface.
    assert len(ports) >= 3
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
    assert set(ports.values()) <= loopback
    assert all(path.startswith(f"{place}/tmp/blizzard-spark-") for path in sockets)
    assert sockets
    tried = "\n".join(found["tried"])
    assert all(f"/proc/{pid}/cmdline" in tried for pid in pids)
    assert all(f"port {port} broadcast 0" in tried for port in ports)
    assert f"file {log}" in tried
    assert ".parquet" in tried  # the table's rows are whoever's may read the table
    assert found["found"] == []
    logged = "".join(file.read_text() for file in events.rglob("*") if file.is_file())
    # What is handed to tasks stands there by its name only, and what the operator has set.
    assert f'"{SECRETS_PROPERTY}":"*********(redacted)"' in logged
    assert '"spark.hadoop.fs.s3a.secret.key":"*********(redacted)"' in logged
    assert not [secret for secret in hush if secret in logged]


@pytest.mark.timeout(600)
def test_a_neighbour_gets_a_closure_of_spark_as_it_comes(tmp_path: Path) -> None:
    """Show that the test above can find something, with Spark's defaults."""
    hush = secrets.token_hex(32)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN_SPARK],
        env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with ended(process):
        process.stdin.write(f"{hush} {tmp_path / 'begun'}\n")
        process.stdin.flush()
        wait_for(process, (tmp_path / "begun").exists)
        pids = descendants(process.pid)
        ports = list(listening(pids))
        asked = {"pids": pids, "ports": ports, "sockets": [], "folders": [], "secrets": [hush]}
        found = as_nobody(asked)["found"]
    assert [each for each in found if "broadcast" in each and each.endswith(hush)], found
