"""The installed wheel, on a machine without the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from tests.support.scenario import ROOT

# From the attribution beside the data: rows, sum of added, sum of delta, users, robots.
FACTS = (39_244, 9_385_573, 8_991_275, 10_531, 15_420)

COPIED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
PACKAGES = ("blizzard_core", "blizzard_py", "penguin_py")


def run(*command: str | Path, cwd: Path, path: str | None = None) -> str:
    """Run a command without the repository in its environment; return its output."""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | ({} if path is None else {"PATH": path}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, since a build writes beside its sources."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in COPIED:
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *offline, "-w", place, source, cwd=place)
    (found,) = place.glob("*.whl")
    return found


def test_the_wheel_holds_the_three_packages_and_nothing_twice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = {name for name in names if ".dist-info/" in name}
    assert {name.partition("/")[0] for name in set(names) - metadata} == set(PACKAGES)
    assert any(name.endswith("/NOTICE") for name in metadata)
    for suffix in ("page.html", "scan.wasm", "edits.yaml", ".json.gz"):
        assert sum(name.endswith(suffix) for name in names) == 1, suffix
    modules = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules - set(names) == set()


@pytest.mark.timeout(600)
def test_an_installed_wheel_has_both_commands_and_plays_the_demo(
    wheel: Path, tmp_path: Path
) -> None:
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=empty)
    python = environment / "bin" / "python"
    offline = ("--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel, cwd=empty)
    # What it depends on is what is installed here; a line in a .pth adds a folder, and not
    # what that folder's own .pth files lead to, such as the repository.
    (found,) = environment.glob("lib/python3*/site-packages")
    (found / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    place = run(python, "-c", "import blizzard_py; print(blizzard_py.__file__)", cwd=empty)
    assert place.startswith(str(environment))

    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for program in ("blizzard", "penguin"):
        assert re.search(r"version \d", run(program, "--version", cwd=empty, path=path))
    told = run("blizzard", "demo", cwd=empty, path=path)
    assert "39,244 rows, each exactly once" in told
    lake = empty / "blizzard-demo/lake/wikipedia"
    version = DeltaTable(lake).version()
    again = re.findall(r"^  (blizzard|penguin) (.*?) +# ", told, re.MULTILINE)
    assert len(again) == 4
    for program, arguments in again:
        run(program, *arguments.split(), cwd=empty, path=path)
    assert [p.name for p in empty.iterdir()] == ["blizzard-demo"]
    # Running them again has changed nothing, and other engines read what the attribution says.
    table = DeltaTable(lake)
    assert table.version() == version
    counts = """select count(*), sum(added), sum("delta"), count(distinct "user"),
                count(*) filter ("isRobot") from edits"""
    with duckdb.connect() as db:
        db.register("edits", table.to_pyarrow_dataset())
        assert db.execute(counts).fetchone() == FACTS
    frame = pl.read_delta(table.table_uri)
    assert (frame.height, frame["added"].sum(), frame["user"].n_unique()) == (
        FACTS[0],
        FACTS[1],
        FACTS[3],
    )
