"""Decisions of deploy/bootstrap.sh, with stand-ins for all programs that it runs.

Each test has a PATH of its own: stand-ins for python3, java, apt-get, apt-cache,
sudo and id, the few real tools that the script uses, and nothing else. Stand-ins
write what they were called with to a log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "bootstrap.sh"
REAL_TOOLS = (
    *("cat", "chmod", "cp", "cut", "dirname", "env", "grep", "mkdir", "mktemp", "mv", "rm"),
    *("sed", "sh", "sha256sum", "tail", "tee", "true"),
)

PYTHON = """\
case "$*" in
    *version_info*) echo "@VERSION@" ;;
    *ensurepip*) [ -e "$STATE/venv-package" ] ;;
    "-m venv "*)
        log "$NAME $*"
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python"
        echo "VIRTUAL_ENV=$3" >"$3/bin/activate"
        : >"$3/bin/pip"; chmod +x "$3/bin/pip" ;;
    "-m pip "*)
        log "pip $*"
        [ ! -e "$STATE/pip-fails" ] ;;
    "-m compileall "*)
        log "compileall $*"
        exit 1 ;; # as some file of some package makes it
    *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""
NODE = "echo '@VERSION@'"
NPM = """\
log "npm $*"
[ ! -e "$STATE/npm-fails" ] || exit 1
rm -rf node_modules && mkdir node_modules
"""
JAVA = "echo \"Picked up JAVA_TOOL_OPTIONS: -Xmx1g\" >&2; echo '@VERSION@' >&2"
APT_CACHE = """\
[ -e "$STATE/lists" ] || exit 0
while read -r name version; do
    if [ "$name" = "$2" ]; then printf '%s:\\n  Candidate: %s\\n' "$name" "$version"; fi
done <"$STATE/lists"
"""
# Installing a package makes what it holds appear.
APT_GET = """\
log "apt-get $*"
case "$*" in
    *" update") cp "$STATE/archive" "$STATE/lists" ;;
    *" download "*)
        [ ! -e "$STATE/broken" ] || { echo "E: no such file in the archive"; exit 100; }
        for name; do :; done
        echo "$name" >"$name.deb" ;;
    *" install "*)
        for name; do
            case $name in
                *-venv) : >"$STATE/venv-package" ;;
                *-jre-headless) [ -e "$STATE/broken" ] || cp "$STATE/java" "$STATE/../bin/java" ;;
                nodejs) cp "$STATE/node" "$STATE/../bin/node" ;;
                npm) cp "$STATE/npm" "$STATE/../bin/npm" ;;
                chromium) cp "$STATE/tool" "$STATE/../bin/chromium" ;;
                postgresql)
                    log "clusters: $(cat "$POSTGRESQL_CONF/createcluster.conf")"
                    mkdir -p "$POSTGRESQL_DIR/15/bin"
                    cp "$STATE/tool" "$POSTGRESQL_DIR/15/bin/initdb"
                    cp "$STATE/tool" "$POSTGRESQL_DIR/15/bin/postgres" ;;
                mariadb-server-core) cp "$STATE/tool" "$SERVERS_DIR/mariadbd" ;;
                mariadb-client-core) cp "$STATE/tool" "$STATE/../bin/mariadb" ;;
                libpostgresql-jdbc-java) : >"$JARS_DIR/postgresql.jar" ;;
            esac
        done
        [ ! -e "$STATE/broken" ] || { echo "E: no such file in the archive"; exit 100; } ;;
esac
"""

# A package holds the program of the tests' interest; installing it would start a service.
DPKG_DEB = """\
log "dpkg-deb $*"
mkdir -p "$3/usr/bin"
case $(cat "$2") in
    prometheus) cp "$STATE/tool" "$3/usr/bin/promtool" ;;
    kubernetes-client) cp "$STATE/tool" "$3/usr/bin/kubectl" ;;
esac
"""

BOOKWORM = """\
python3.11-venv 3.11.2-6
openjdk-17-jre-headless 17.0.19+10-1~deb12u2
default-jre-headless 2:1.17-74
openjdk-21-jre-headless (none)
chromium 138.0.7204.157-1~deb12u1
kubernetes-client 1.20.5+really1.20.2-1.1
prometheus 2.42.0+ds-5+b5
postgresql 15+248
mariadb-server-core 1:10.11.6-0+deb12u1
mariadb-client-core 1:10.11.6-0+deb12u1
libpostgresql-jdbc-java 42.5.5-0+deb12u1
"""

INSTALLED = ["pip", "pip", "pip", "compileall"]


class Machine:
    """A fresh machine: Python 3.11 without ensurepip, no Java, root, no package lists yet.

    It has Node.js, Chromium, promtool, kubectl and the servers of databases, which only the
    development set needs.
    """

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        self.bin = place / "bin"
        self.state = place / "state"
        self.jvm = place / "jvm"
        self.servers = place / "sbin"
        self.jars = place / "java"
        self.postgresql = place / "postgresql"
        self.clusters = place / "postgresql-common"
        self.environment: dict[str, str] = {
            "POSTGRESQL_DIR": str(self.postgresql),
            "POSTGRESQL_CONF": str(self.clusters),
            "SERVERS_DIR": str(self.servers),
            "JARS_DIR": str(self.jars),
        }
        directories = (self.project / "deploy", self.bin, self.state, self.jvm, self.servers)
        for directory in (*directories, self.jars):
            directory.mkdir(parents=True)
        shutil.copy(SCRIPT, self.project / "deploy")
        for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock"):
            (self.project / name).write_text(name)
        emulator = self.project / "tests" / "azurite"
        emulator.mkdir(parents=True)
        (emulator / "package-lock.json").write_text("locked")
        for tool in REAL_TOOLS:
            real = shutil.which(tool)
            assert real is not None, f"{tool} is needed to test the bootstrap"
            (self.bin / tool).symlink_to(real)
        self.python("python3", "3.11")
        self.stand_in(self.bin / "id", "echo 0")
        self.stand_in(self.bin / "apt-cache", APT_CACHE)
        self.stand_in(self.bin / "apt-get", APT_GET)
        self.java(self.state / "java", 'openjdk version "17.0.9" 2023-10-17')
        self.node("v20.1.0")
        self.stand_in(self.state / "npm", NPM)
        shutil.copy(self.state / "node", self.bin / "node")
        shutil.copy(self.state / "npm", self.bin / "npm")
        self.stand_in(self.state / "tool", "echo 'from its package'")
        (self.jars / "postgresql.jar").touch()
        for tool in ("chromium", "kubectl", "promtool", "initdb", "postgres", "mariadbd",
                     "mariadb"):  # fmt: skip
            shutil.copy(self.state / "tool", self.bin / tool)
        self.stand_in(self.bin / "dpkg-deb", DPKG_DEB)
        self.archive(BOOKWORM)

    def stand_in(self, path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(
            f"#!/bin/sh\nSTATE={self.state} NAME={path.name}\n"
            f'log() {{ printf "%s\\n" "$*" >>"$STATE/log"; }}\n{body}\n'
        )
        path.chmod(0o755)

    def python(self, name: str, version: str) -> Path:
        self.stand_in(self.bin / name, PYTHON.replace("@VERSION@", version))
        return self.bin / name

    def java(self, path: Path, line: str) -> None:
        self.stand_in(path, JAVA.replace("@VERSION@", line))

    def node(self, version: str) -> None:
        """Make the distribution's package of Node."""
        self.stand_in(self.state / "node", NODE.replace("@VERSION@", version))

    def archive(self, packages: str) -> None:
        (self.state / "archive").write_text(f"{packages}\n")

    def has(self, *things: str) -> None:
        for thing in things:
            if thing == "java":
                shutil.copy(self.state / "java", self.bin / "java")
            else:
                (self.state / thing).touch()

    def not_root(self) -> None:
        self.stand_in(self.bin / "id", "echo 1000")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.project / "deploy" / "bootstrap.sh", *arguments],
            env={"PATH": str(self.bin), "JVM_DIR": str(self.jvm), **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run_at_terminal(self, *arguments: str, typed: str) -> tuple[int, str]:
        """Return the exit code and the terminal's content."""
        ours, theirs = os.openpty()
        os.write(ours, typed.encode())
        done = subprocess.run(
            [self.project / "deploy" / "bootstrap.sh", *arguments],
            env={"PATH": str(self.bin), "JVM_DIR": str(self.jvm), **self.environment},
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=60,
            check=False,
        )
        os.close(theirs)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        return done.returncode, shown

    def log(self) -> list[str]:
        log = self.state / "log"
        return log.read_text().splitlines() if log.exists() else []

    def apt(self) -> list[str]:
        """Return the calls of apt-get: `update`, or the packages to install."""
        calls = [
            line.split()
            for line in self.log()
            if line.startswith("apt-get ") and " download " not in line
        ]
        return [
            "update" if call[-1] == "update" else " ".join(call[call.index("install") + 3 :])
            for call in calls
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_fresh_machine_is_installed_and_second_run_does_nothing(machine: Machine) -> None:
    first = machine.run("runtime", "--", "env")
    assert first.returncode == 0, first.stderr
    assert machine.apt() == ["update", "python3.11-venv openjdk-17-jre-headless"]
    log = machine.log()
    assert [line.split()[0] for line in log[2:]] == ["python3", *INSTALLED]
    assert "--require-hashes -r requirements-build.lock" in log[3]
    assert "--require-hashes -r requirements.lock" in log[4]
    assert "--no-deps --editable ." in log[5]
    assert f"PATH={machine.project}/.venv/bin:" in first.stdout

    second = machine.run("runtime", "--", "env")
    assert second.returncode == 0
    assert second.stderr == ""
    assert machine.log() == log


def test_nothing_is_installed_with_apt_where_nothing_is_missing(machine: Machine) -> None:
    machine.has("venv-package", "java")
    assert machine.run("dev").returncode == 0
    assert machine.apt() == []


def test_package_lists_are_updated_only_if_needed(machine: Machine) -> None:
    shutil.copy(machine.state / "archive", machine.state / "lists")
    assert machine.run("dev").returncode == 0
    assert machine.apt() == ["python3.11-venv openjdk-17-jre-headless"]


def test_the_development_packages_include_the_runtime_ones(machine: Machine) -> None:
    machine.has("venv-package", "java")
    assert machine.run("dev").returncode == 0
    before = machine.log()
    assert any("-r requirements-dev.lock" in line for line in before)
    assert machine.run("runtime").stderr == ""
    assert machine.log() == before


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements.lock"])
def test_changed_requirements_install_into_the_same_venv(machine: Machine, name: str) -> None:
    machine.has("venv-package", "java")
    assert machine.run("runtime").returncode == 0
    (machine.project / name).write_text("changed")
    assert machine.run("runtime").returncode == 0
    assert [line.split()[0] for line in machine.log()] == ["python3", *INSTALLED, *INSTALLED]


def test_failed_installation_is_repeated(machine: Machine) -> None:
    machine.has("venv-package", "java", "pip-fails")
    failed = machine.run("runtime", "--", "env")
    assert failed.returncode == 1
    assert "pip could not install --require-hashes -r requirements-build.lock" in failed.stderr
    assert failed.stdout == ""
    (machine.state / "pip-fails").unlink()
    assert "installing locked packages" in machine.run("runtime").stderr


def test_a_failed_change_is_not_undone_by_changing_back(machine: Machine) -> None:
    machine.has("venv-package", "java")
    assert machine.run("dev").returncode == 0
    lock = machine.project / "requirements.lock"
    before = lock.read_text()
    lock.write_text("changed")
    machine.has("pip-fails")  # with some of the packages replaced, maybe
    assert machine.run("runtime").returncode == 1
    (machine.state / "pip-fails").unlink()
    lock.write_text(before)
    assert "installing locked packages" in machine.run("dev").stderr


def test_venv_of_another_folder_is_rebuilt(machine: Machine, tmp_path: Path) -> None:
    machine.has("venv-package", "java")
    assert machine.run("runtime").returncode == 0
    machine.project = machine.project.rename(tmp_path / "moved")
    assert "creating .venv" in machine.run("runtime").stderr


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('openjdk version "25-ea" 2025-09-16', True),
        ('java version "1.8.0_292"', False),
        ('openjdk version "11.0.22" 2024-01-16', False),
        ("Error occurred during initialization of VM", False),
    ],
)
def test_java_counts_from_17_on(machine: Machine, line: str, *, good: bool) -> None:
    machine.has("venv-package")
    machine.java(machine.bin / "java", line)
    assert machine.run("runtime").returncode == 0
    assert machine.apt() == ([] if good else ["update", "openjdk-17-jre-headless"])


def test_good_java_home_is_used(machine: Machine) -> None:
    machine.has("venv-package")
    home = machine.jvm.parent / "elsewhere"
    machine.java(home / "bin" / "java", 'openjdk version "21.0.1" 2023-10-17')
    machine.environment["JAVA_HOME"] = str(home)
    assert f"JAVA_HOME={home}" in machine.run("runtime", "--", "env").stdout.splitlines()
    assert machine.apt() == []


def test_an_old_java_home_gives_way_to_a_good_java_on_path(machine: Machine) -> None:
    machine.has("venv-package", "java")
    home = machine.jvm.parent / "old"
    machine.java(home / "bin" / "java", 'openjdk version "11.0.22" 2024-01-16')
    machine.environment["JAVA_HOME"] = str(home)
    assert "JAVA_HOME" not in machine.run("runtime", "--", "env").stdout


def test_java_outside_path_reaches_the_command_the_newest_first(machine: Machine) -> None:
    machine.has("venv-package")
    for name, major in (("first", 17), ("second", 21), ("third", 19), ("fourth", 11)):
        machine.java(machine.jvm / name / "bin" / "java", f'java version "{major}.0.1"')
    done = machine.run("runtime", "--", "env")
    assert f"JAVA_HOME={machine.jvm}/second" in done.stdout.splitlines()
    assert machine.apt() == []


@pytest.mark.parametrize(
    ("archive", "package"),
    [
        (
            "openjdk-17-jre-headless 17.0.9\nopenjdk-21-jre-headless 21.0.5",
            "openjdk-21-jre-headless",
        ),
        ("openjdk-17-jre-headless (none)\ndefault-jre-headless 2:1.25-80", "default-jre-headless"),
    ],
)
def test_newest_java_package_is_installed(machine: Machine, archive: str, package: str) -> None:
    machine.has("venv-package")
    machine.archive(archive)
    assert machine.run("runtime").returncode == 0
    assert machine.apt() == ["update", package]


def test_distribution_without_java_17_is_reported(machine: Machine) -> None:
    machine.has("venv-package")
    machine.archive("default-jre-headless 2:1.11-72")
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "a Java runtime, 17 or newer; this distribution has none" in done.stderr


def test_failed_apt_installation_is_retried_with_new_lists(
    machine: Machine,
) -> None:
    machine.has("venv-package", "broken")
    shutil.copy(machine.state / "archive", machine.state / "lists")
    done = machine.run("runtime")
    assert done.returncode == 1
    assert machine.apt() == ["openjdk-17-jre-headless", "update", "openjdk-17-jre-headless"]
    assert "E: no such file in the archive" in done.stderr
    assert "try: apt-get update && apt-get install openjdk-17-jre-headless" in done.stderr


def test_without_rights_it_only_names_packages_to_install(machine: Machine) -> None:
    machine.not_root()
    machine.archive("")
    done = machine.run("runtime", "--", "env")
    assert done.returncode == 1
    assert (
        "missing: Python's venv module for python3 and a Java runtime, 17 or newer" in done.stderr
    )
    assert "apt-get install python3.11-venv default-jre-headless" in done.stderr
    assert done.stdout == ""
    assert machine.log() == []
    assert not (machine.project / ".venv").exists()


def test_sudo_with_password_is_not_used(machine: Machine) -> None:
    machine.not_root()
    machine.stand_in(machine.bin / "sudo", 'log "sudo $*"; exit 1')
    machine.environment["SETUP_SUDO"] = "yes"
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "no right to install" in done.stderr
    assert machine.log() == ["sudo -n true"]


@pytest.mark.parametrize("said", [None, "no", "perhaps"])
def test_sudo_is_not_tried_without_consent(machine: Machine, said: str | None) -> None:
    machine.not_root()
    machine.stand_in(machine.bin / "sudo", 'log "sudo $*"; [ "$1" = -n ] && shift; exec "$@"')
    if said is not None:
        machine.environment["SETUP_SUDO"] = said
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "sudo only with SETUP_SUDO=yes" in done.stderr
    assert machine.log() == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1)])
def test_terminal_prompts_once(machine: Machine, answer: str, code: int) -> None:
    machine.not_root()
    machine.stand_in(machine.bin / "sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    done, told = machine.run_at_terminal("runtime", typed=answer)
    assert done == code
    assert told.count("use sudo to install") == 1


def test_sudo_without_a_password_installs(machine: Machine) -> None:
    machine.not_root()
    machine.stand_in(machine.bin / "sudo", '[ "$1" = -n ] || exit 1; shift; exec "$@"')
    machine.environment["SETUP_SUDO"] = "yes"
    assert machine.run("runtime").returncode == 0
    assert machine.apt() == ["update", "python3.11-venv openjdk-17-jre-headless"]


def test_a_machine_without_apt_gets_the_names_of_the_things(machine: Machine) -> None:
    (machine.bin / "apt-get").unlink()
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "Java runtime, 17 or newer; install it with your distribution's" in done.stderr


def test_first_suitable_python_is_used(machine: Machine) -> None:
    machine.has("venv-package", "java")
    machine.python("python3", "3.14")
    machine.python("python3.11", "3.11")
    machine.python("python3.12", "3.12")
    assert "with Python 3.12" in machine.run("runtime").stderr
    assert machine.log()[0].startswith("python3.12 -m venv")


def test_missing_python_error_names_the_versions(machine: Machine) -> None:
    machine.has("java")
    machine.python("python3", "3.9")
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "Python 3.11, 3.12 or 3.13 is needed and none was found" in done.stderr


def test_chosen_python_replaces_a_venv_of_another_version(machine: Machine) -> None:
    machine.has("venv-package", "java")
    assert "with Python 3.11" in machine.run("runtime").stderr
    machine.environment["PYTHON"] = str(machine.python("my-python", "3.13"))
    assert "with Python 3.13" in machine.run("runtime").stderr
    assert machine.run("runtime").stderr == ""


def test_an_unsuitable_python_of_the_callers_choice_is_refused(machine: Machine) -> None:
    machine.has("venv-package", "java")
    machine.environment["PYTHON"] = str(machine.python("my-python", "3.8"))
    done = machine.run("runtime")
    assert done.returncode == 1
    assert "is not Python 3.11, 3.12 or 3.13 (it answers '3.8')" in done.stderr


def test_the_commands_exit_code_is_handed_on(machine: Machine) -> None:
    machine.has("venv-package", "java")
    assert machine.run("runtime", "--", "sh", "-c", "exit 7").returncode == 7


def test_an_unknown_set_of_packages_is_refused(machine: Machine) -> None:
    done = machine.run("everything")
    assert done.returncode == 1
    assert "runtime|dev" in done.stderr


def test_emulator_is_installed_again_when_its_lock_changes(machine: Machine) -> None:
    machine.has("venv-package", "java")

    def npm() -> int:
        return len([line for line in machine.log() if line.startswith("npm ci ")])

    assert machine.run("runtime").returncode == 0
    assert npm() == 0
    assert machine.run("dev").returncode == 0
    assert npm() == 1
    again = machine.run("dev")
    assert (again.returncode, again.stderr, npm()) == (0, "", 1)
    (machine.project / "tests" / "azurite" / "package-lock.json").write_text("another")
    machine.has("npm-fails")
    assert "npm could not install the Azure emulator" in machine.run("dev").stderr
    (machine.state / "npm-fails").unlink()
    assert machine.run("dev").returncode == 0
    assert npm() == 3


@pytest.mark.parametrize("missing", ["node", "npm", "a newer node"])
def test_node_is_installed_where_the_tests_need_it(machine: Machine, missing: str) -> None:
    machine.has("venv-package", "java")
    machine.archive("nodejs 18.20.4+dfsg-1~deb12u1\nnpm 9.2.0~ds1-1")
    if missing == "a newer node":
        machine.stand_in(machine.bin / "node", NODE.replace("@VERSION@", "v12.22.5"))
    else:
        (machine.bin / missing).unlink()
    assert machine.run("runtime").returncode == 0
    assert machine.apt() == []
    done = machine.run("dev")
    assert done.returncode == 0, done.stderr
    assert machine.apt() == ["update", "nodejs npm"]


def test_node_package_with_npm_is_installed_alone(machine: Machine) -> None:
    machine.has("venv-package", "java")
    (machine.bin / "node").unlink()
    machine.archive("nodejs 20.20.2-1nodesource1\nnpm (none)")
    assert machine.run("dev").returncode == 0
    assert machine.apt() == ["update", "nodejs"]


def test_distribution_with_old_node_is_reported(machine: Machine) -> None:
    machine.has("venv-package", "java")
    machine.node("v12.22.5")
    (machine.bin / "node").unlink()
    done = machine.run("dev")
    assert done.returncode == 1
    assert "it is older than 18 or lacks npm" in done.stderr


def test_chromium_is_installed_where_the_tests_need_it(machine: Machine) -> None:
    machine.has("venv-package", "java")
    (machine.bin / "chromium").unlink()
    assert machine.run("runtime").returncode == 0
    assert machine.apt() == []
    assert machine.run("dev").returncode == 0
    assert machine.apt() == ["chromium"]
    again = machine.run("dev")
    assert (again.stderr, machine.apt()) == ("", ["chromium"])


@pytest.mark.parametrize(
    ("tool", "package"), [("promtool", "prometheus"), ("kubectl", "kubernetes-client")]
)
def test_tools_are_extracted_without_installing_packages(
    machine: Machine, tool: str, package: str
) -> None:
    machine.has("venv-package", "java")
    machine.not_root()
    shutil.copy(machine.state / "archive", machine.state / "lists")
    (machine.bin / tool).unlink()
    done = machine.run("dev", "--", tool)
    assert (done.returncode, done.stdout) == (0, "from its package\n"), done.stderr
    assert f"taking {tool} out of the distribution's package {package}" in done.stderr
    assert machine.apt() == []
    again = machine.run("dev", "--", tool)
    assert (again.stdout, again.stderr) == ("from its package\n", "")


def test_tools_on_path_win_over_fetched_ones(machine: Machine) -> None:
    machine.has("venv-package", "java")
    (machine.bin / "kubectl").unlink()
    assert machine.run("dev").returncode == 0
    machine.stand_in(machine.bin / "kubectl", "echo 'my own'")
    assert machine.run("dev", "--", "kubectl").stdout == "my own\n"


def test_unavailable_tool_is_named(machine: Machine) -> None:
    machine.has("venv-package", "java", "broken")
    (machine.bin / "promtool").unlink()
    done = machine.run("dev")
    assert done.returncode == 1
    assert "no such file in the archive" in done.stderr
    assert "could not download prometheus, which has promtool" in done.stderr
    assert not (machine.project / ".tools" / "promtool").exists()


def test_without_lists_or_rights_the_remedy_is_printed(machine: Machine) -> None:
    machine.has("venv-package", "java")
    machine.not_root()
    (machine.bin / "kubectl").unlink()
    done = machine.run("dev")
    assert done.returncode == 1
    assert "missing: kubectl; as root, run: apt-get update" in done.stderr


SERVERS = "postgresql mariadb-server-core mariadb-client-core libpostgresql-jdbc-java"


def without_servers(machine: Machine) -> None:
    for tool in ("initdb", "postgres", "mariadbd", "mariadb"):
        (machine.bin / tool).unlink()
    (machine.jars / "postgresql.jar").unlink()


def test_servers_are_installed_without_cluster_outside_path(machine: Machine) -> None:
    machine.has("venv-package", "java")
    without_servers(machine)
    done = machine.run("dev")
    assert done.returncode == 0, done.stderr
    assert machine.apt() == [SERVERS]
    # Said before the package was there: it makes a cluster and starts it otherwise.
    assert "clusters: create_main_cluster = false" in machine.log()
    again = machine.run("dev")
    assert (again.stderr, machine.apt()) == ("", [SERVERS])


def test_existing_postgresql_settings_stay(machine: Machine) -> None:
    machine.has("venv-package", "java")
    without_servers(machine)
    machine.clusters.mkdir()
    settings = machine.clusters / "createcluster.conf"
    settings.write_text("my own\n")
    assert machine.run("dev").returncode == 0
    assert settings.read_text() == "my own\n"


def test_only_the_missing_server_is_installed(machine: Machine) -> None:
    machine.has("venv-package", "java")
    (machine.bin / "mariadb").unlink()
    assert machine.run("dev").returncode == 0
    assert machine.apt() == ["mariadb-server-core mariadb-client-core"]
    assert not machine.clusters.exists()


def test_uninstallable_servers_are_named(machine: Machine) -> None:
    machine.has("venv-package", "java")
    machine.not_root()
    without_servers(machine)
    done = machine.run("dev")
    assert done.returncode == 1
    assert "missing: database servers for the tests" in done.stderr
    assert f"apt-get install {SERVERS}" in done.stderr
