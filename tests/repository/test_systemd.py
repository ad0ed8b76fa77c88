"""systemd units: their exit codes and signals, and their syntax.

Where there is no systemd its own check is left out, and what the units say is looked at all the
same.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "systemd"
DAEMONS = ("blizzard", "penguin")
# The line that both units show, for a secret.
CREDENTIAL = "LoadCredential=TABLE_KEY:/etc/blizzard/%i.TABLE_KEY"
# In tenths, from `systemd-analyze security`; 100 is a service without any bounds.
EXPOSURE = 20


def unit_options(daemon: str) -> dict[str, str]:
    text = (FOLDER / f"{daemon}@.service").read_text(encoding="utf-8")
    pairs = re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE)
    return dict(pairs)


@pytest.mark.parametrize("daemon", DAEMONS)
def test_unit_restarts_unless_a_restart_cannot_help(daemon: str) -> None:
    unit = unit_options(daemon)
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("on-failure", "0")
    prevented = unit["RestartPreventExitStatus"].split()
    table = (ROOT / "docs/reference/exit-codes.md").read_text("utf-8")
    codes = dict(re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE))
    assert "configuration" in codes[prevented[0]]
    assert "Another daemon has the source" in codes[prevented[1]]
    assert prevented == ["2", "3"]
    assert f"/bin/{daemon} run /etc/blizzard/%i.yaml" in unit["ExecStart"]


@pytest.mark.parametrize("daemon", DAEMONS)
def test_sigterm_reaches_the_daemon_alone_and_it_has_time(daemon: str) -> None:
    unit = unit_options(daemon)
    # A JVM that gets the signal as well ends at once, and the batch with it.
    assert unit["KillMode"] == "mixed"
    pod = (ROOT / f"deploy/kubernetes/base/{daemon}.yaml").read_text("utf-8")
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", pod)
    assert int(unit["TimeoutStopSec"]) == int(grace[1])


@pytest.mark.parametrize("daemon", DAEMONS)
def test_credentials_lie_where_they_do_on_kubernetes(daemon: str) -> None:
    """One configuration serves both daemons, and credentials of a unit are in its own directory."""
    pod = yaml.safe_load_all((ROOT / f"deploy/kubernetes/base/{daemon}.yaml").read_text("utf-8"))
    (workload,) = [each for each in pod if each["kind"] == "StatefulSet"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    (mounted,) = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "credentials"]
    # The unit also starts without credentials.
    assert unit_options(daemon)["BindReadOnlyPaths"] == f"-/run/credentials/%n:{mounted}"
    page = (ROOT / "docs/guides/systemd.md").read_text("utf-8")
    assert CREDENTIAL.replace("%i", "events") in page
    assert f"${{file:{mounted}/TABLE_KEY}}" in page


@pytest.mark.parametrize("daemon", DAEMONS)
def test_systemd_takes_the_unit_and_finds_it_bounded(daemon: str, tmp_path: Path) -> None:
    unit = tmp_path / f"{daemon}@events.service"
    text = (FOLDER / f"{daemon}@.service").read_text(encoding="utf-8")
    program = shutil.which("true")
    assert program is not None
    assert text.count(f"# {CREDENTIAL}\n") == 1
    # It looks whether the program is there.
    text = text.replace(f"/opt/blizzard/bin/{daemon}", program)
    unit.write_text(text.replace(f"# {CREDENTIAL}", CREDENTIAL))
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [analyze, "security", "--offline=yes", f"--threshold={EXPOSURE}", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
