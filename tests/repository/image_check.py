"""`make image-test`: build the container image offline and run both daemons in it.

The bases are made here, of the distribution that apt is configured for, and the build has
no network: what it needs is in the bases and in a folder of wheels. The image then runs
as an orchestrator would run it: as its own user without any capability, on a root file
system that is mounted read-only. Needs root, for mounts; everything is in a temporary
directory and gone at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from deltalake import DeltaTable

from blizzard_py.demo.edits import SAMPLE, configuration
from blizzard_py.demo.split import split

ROOT = Path(__file__).parents[2]
USER = 10001
ROWS = 39_244
TOOLS = {"buildah": "buildah", "bwrap": "bubblewrap", "mmdebstrap": "mmdebstrap"}
JAVA = {"bookworm": "openjdk-17-jre-headless", "trixie": "openjdk-21-jre-headless"}
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
CONTEXT = (
    *("Dockerfile", ".dockerignore", "LICENSE", "NOTICE", "README.md", "pyproject.toml"),
    *("requirements-build.lock", "requirements-image.lock"),
    *("blizzard_core", "blizzard_py", "penguin_py", "deploy/image"),
)
# Nothing that builds or installs software has a place in the image.
ABSENT = ("pip", "pip3", "gcc", "cc", "g++", "make", "git", "curl", "wget")
# Where the image has its configuration, and where the test's data is in it: nothing can be
# mounted where no folder is.
CONFIG_FOLDER = "/etc/blizzard"
CONFIG_PATH = f"{CONFIG_FOLDER}/config.yaml"
DATA = "/scratch/data"


def say(text: str) -> None:
    sys.stderr.write(f"image-test: {text}\n")


def fail(text: str) -> NoReturn:
    sys.exit(f"image-test: {text}")


def check(holds: bool, text: str) -> None:
    if not holds:
        fail(f"FAILED: {text}")
    say(f"ok: {text}")


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command to its end; its output is shown only if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        say("\n".join((done.stdout + done.stderr).splitlines()[-40:]))
        fail(f"exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def prepare() -> tuple[str, str]:
    """Root, the tools and a release we know; its code name and Java package."""
    if os.geteuid() != 0:
        fail("mounting an image needs root; run it as root: sudo make image-test")
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if line
    )
    suite = release.get("VERSION_CODENAME", "").strip('"')
    if suite not in JAVA:
        fail(f"needs one of these releases of Debian: {', '.join(JAVA)}; this is {suite or '?'}")
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        say(f"installing {' '.join(missing)} from the distribution...")
        call("apt-get", "-qq", "update")
        call("apt-get", "-qq", "install", "--yes", "--no-install-recommends", *missing)
    return suite, JAVA[suite]


@contextmanager
def step(text: str) -> Iterator[None]:
    say(f"{text}...")
    start = time.monotonic()
    yield
    say(f"{text}: {time.monotonic() - start:.0f} s")


@dataclass(frozen=True)
class Builder:
    """buildah with a store of its own; vfs and chroot need nothing of the kernel."""

    place: Path

    def run(self, *arguments: str | Path, offline: bool = False) -> str:
        storage = ("--storage-driver", "vfs", "--root", self.place / "store")
        command = ("buildah", *storage, "--runroot", self.place / "run", *arguments)
        return call(*(("unshare", "--net") if offline else ()), *command).strip()

    def base(self, name: str, suite: str, packages: Sequence[str]) -> None:
        """Make a minimal Debian with the packages, from apt's own source."""
        sources = next((path for path in SOURCES if Path(path).exists()), None)
        if sources is None:
            fail(f"apt has its sources in neither of {', '.join(SOURCES)}")
        tar = self.place / f"{name}.tar"
        include = f"--include={','.join(packages)}"
        call("mmdebstrap", "--mode=root", "--variant=minbase", include, suite, tar, sources)
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, tar, "/")
        self.run("commit", "--quiet", "--rm", container, f"localhost/{name}")
        tar.unlink()

    def build(self, context: Path, **arguments: str) -> None:
        chosen = [part for item in arguments.items() for part in ("--build-arg", "=".join(item))]
        options = ("--isolation", "chroot", "--pull-never", "--format", "docker")
        self.run("bud", *options, *chosen, "--tag", "localhost/image", context, offline=True)


def make_context(place: Path) -> Path:
    """Make the build context of the Dockerfile, with every locked package in ``wheels``."""
    context = place / "context"
    for name in CONTEXT:
        source, target = ROOT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    options = ("--no-deps", "--no-build-isolation", "--require-hashes")
    locks = ("-r", "requirements-build.lock", "-r", "requirements-image.lock")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download")
    call(*pip, *options, "--dest", context / "wheels", *locks)
    return context


@dataclass(frozen=True)
class Image:
    """The image, mounted, and what it says about itself."""

    root: Path
    config: Mapping[str, Any]
    scratch: Path

    def start(
        self, command: Sequence[str], config: Path | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Run the command as process 1's child, as the image does."""
        pairs = dict(pair.split("=", 1) for pair in self.config["Env"]) | environment
        isolation = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1")
        places = [
            *("--ro-bind", self.root, "/", "--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--tmpfs", "/tmp", "--bind", self.scratch, "/scratch"),
        ]
        if config is not None:
            places += ["--ro-bind", config, CONFIG_FOLDER]
        variables = [part for item in pairs.items() for part in ("--setenv", *item)]
        drop = (
            *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        )
        return subprocess.Popen(
            [
                *("bwrap", "--die-with-parent", *isolation, *places, "--clearenv", *variables),
                *("--chdir", self.config["WorkingDir"]),
                *(*drop, *self.config["Entrypoint"], *command),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, config: Path | None = None, **environment: str) -> tuple[int, str]:
        """Exit code and output."""
        process = self.start(command, config, **environment)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output


def check_contents(image: Image) -> None:
    config = image.config
    check(config["User"] == f"{USER}:{USER}", f"runs as {USER}:{USER}")
    check(config["Healthcheck"]["Test"][0] == "CMD", "has a health check that needs no shell")
    code, output = image.run("sh", "-c", "id -u; id -g; grep CapEff /proc/self/status")
    check(code == 0 and output.split()[:2] == [str(USER)] * 2, "is that user when it runs")
    code, output = image.run("touch", "/opt/venv/x")
    check(code != 0 and "Read-only file system" in output, "cannot write to its root file system")
    for tool in ABSENT:
        code, _ = image.run("sh", "-c", f"command -v {tool}")
        check(code != 0, f"has no {tool}")
    for module in ("pip", "setuptools", "ensurepip.__main__"):
        code, _ = image.run("python", "-c", f"import {module}")
        check(code != 0, f"cannot import {module}")
    code, output = image.run("blizzard", "--version")
    check(code == 0 and "version" in output, "blizzard --version")


def check_executor(image: Image) -> None:
    """Check that an executor gets as far as calling the driver, which does not exist."""
    asked = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "blizzard-exec-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    code, output = image.run(
        "python", "-m", "blizzard_py.engines.spark.executor", "executor", **asked
    )
    check(code != 0 and "Failed to connect to /127.0.0.1:1" in output, "an executor of Kubernetes")


def config_folder(place: Path, name: str, addition: str = "") -> Path:
    """Make a folder with the demo's configuration and an addition, as an orchestrator mounts it."""
    folder = place / name
    folder.mkdir()
    (folder / "config.yaml").write_text(configuration(Path(DATA)) + addition)
    return folder


def check_daemons(image: Image, place: Path) -> None:
    """Check that both daemons bring each of the demo's events into a table exactly once."""
    data = image.scratch / "data"
    split(SAMPLE, data / "raw")
    own(data)
    config = config_folder(place, "plain")
    for daemon in ("blizzard", "penguin"):
        start = time.monotonic()
        code, output = image.run(daemon, "run", CONFIG_PATH, "--once", config=config)
        if code != 0:
            say(output)
        check(code == 0, f"{daemon} run --once ({time.monotonic() - start:.1f} s)")
    table = DeltaTable(data / "lake" / "wikipedia")
    rows = sum(table.get_add_actions(flatten=True).column("num_records").to_pylist())
    check(rows == ROWS, f"the table holds {rows:,} rows of {ROWS:,}")
    owners = {path.stat().st_uid for path in (data / "lake").rglob("*")}
    check(owners == {USER}, "everything it wrote is its user's")
    _, *health = image.config["Healthcheck"]["Test"]
    code, _ = image.run(*health, config=config)
    check(code == 0, "the health check passes where metrics are off")


def check_signals(image: Image, place: Path) -> None:
    """While it runs the health check passes; SIGTERM ends it in time with 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = config_folder(place, "served", f"\nmetrics: {{ address: 0.0.0.0:{port} }}\n")
    _, *health = image.config["Healthcheck"]["Test"]
    for daemon in ("blizzard", "penguin"):
        process = image.start((daemon, "run", CONFIG_PATH), config)
        if not any("started" in line for line in process.stdout):
            fail(f"{daemon} did not start")
        code, output = image.run(*health, config=config)
        check(code == 0, f"the health check of {daemon}: {output.strip()[:60]!r}")
        start = time.monotonic()
        os.kill(first_process_of(process.pid), signal.SIGTERM)
        process.communicate(timeout=60)
        took = time.monotonic() - start
        check(process.returncode == 0, f"{daemon} ends on SIGTERM with exit code 0 ({took:.1f} s)")
        code, _ = image.run(*health, config=config)
        check(code == 1, f"the health check notices that {daemon} is gone")


def first_process_of(bwrap: int) -> int:
    """Return the container's process 1, as the host sees it."""
    return int(Path(f"/proc/{bwrap}/task/{bwrap}/children").read_text().split()[0])


def own(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER, USER)


def main() -> None:
    started = time.monotonic()
    suite, java = prepare()
    with tempfile.TemporaryDirectory(prefix="image-test-", dir="/var/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        builder = Builder(place)
        with step(f"making two bases of Debian {suite}"):
            builder.base("base", suite, ("python3", java, "tini", "ca-certificates"))
            builder.base("build", suite, ("python3", "python3-venv", "ca-certificates"))
        with step("collecting the locked packages"):
            context = make_context(place)
        with step("building the image without a network"):
            bases = {"BASE": "localhost/base", "BUILD_BASE": "localhost/build"}
            builder.build(context, **bases, JRE=java)
        size = builder.run("images", "--format", "{{.Size}}", "localhost/image")
        say(f"the image has {size}")
        container = builder.run("from", "--pull-never", "localhost/image")
        found = json.loads(builder.run("inspect", "--type", "image", "localhost/image"))
        scratch = place / "scratch"
        scratch.mkdir()
        own(scratch)
        root = Path(builder.run("mount", container))
        image = Image(root, found["Docker"]["config"], scratch)
        check_contents(image)
        check_executor(image)
        check_daemons(image, place)
        check_signals(image, place)
    say(f"all good, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
