"""``make audit``: known vulnerabilities of the locked packages.

Without a folder `pip-audit` asks PyPI's service, which wants a network and the service; a package
of which nothing is told is an error there, never "no vulnerability". ``--advisories FOLDER`` is for
machines without a network: a copy of PyPA's advisory database, read here. It knows what it knew
when it was copied, so its newest advisory is told.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.repository.locked import DEVELOPMENT, ROOT, RUNTIME, Package, packages

_PUBLISHED = re.compile(r"^\W?published\W+(\d{4}-\d\d-\d\d)", re.MULTILINE)
PIP_AUDIT = "pip-audit==2.10.1"


def affects(advisory: Mapping[str, Any], package: Package) -> bool:
    """Return whether an advisory in OSV's format concerns this version."""
    return any(
        entry.get("package", {}).get("ecosystem") == "PyPI"
        and canonicalize_name(entry["package"]["name"]) == canonicalize_name(package.name)
        and (
            package.version in entry.get("versions", ())
            or any(_in_range(each, Version(package.version)) for each in entry.get("ranges", ()))
        )
        for entry in advisory.get("affected", ())
    )


def _in_range(found: Mapping[str, Any], version: Version) -> bool:
    if found.get("type") != "ECOSYSTEM":
        return False
    inside = False
    # They come in any order, and count in that of versions.
    events = [(Version(at), kind) for each in found["events"] for kind, at in each.items()]
    for at, kind in sorted(events):
        if kind == "introduced":
            inside = inside or at <= version
        elif kind == "fixed":
            inside = inside and version < at
        elif kind == "last_affected":
            inside = inside and version <= at
    return inside


def advisories(folder: Path, names: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the advisories for these packages that were not withdrawn."""
    for name in sorted({canonicalize_name(name) for name in names}):
        for path in sorted((folder / "vulns" / name).glob("*.yaml")):
            found = yaml.safe_load(path.read_text())
            if not found.get("withdrawn"):
                yield found


def audit(folder: Path, locks: Iterable[Path]) -> list[str]:
    """Return a line for each package with a known vulnerability."""
    locked = {package for lock in locks for package in packages(lock)}
    return sorted(
        f"{package.name} {package.version}: {advisory['id']} ({', '.join(advisory['aliases'])})"
        for advisory in advisories(folder, (package.name for package in locked))
        for package in locked
        if affects(advisory, package)
    )


def newest(folder: Path) -> str:
    """Return the date of the newest advisory of a copy. Raise `SystemExit` if there is none."""
    files = list((folder / "vulns").glob("*/*.yaml"))
    if not files:
        sys.exit(f"audit: {folder} has no vulns/*/*.yaml; give a copy of PyPA's advisory database")
    return max(found[1] for path in files if (found := _PUBLISHED.search(path.read_text())))


def main() -> int:
    """Return 0 without known vulnerabilities; 1 with some, or if no source answers."""
    parser = argparse.ArgumentParser(prog="make audit ARGS=…")
    parser.add_argument("--advisories", type=Path, help="a copy of PyPA's advisory database")
    parser.add_argument("--dev", action="store_true", help="development packages as well")
    chosen = parser.parse_args()
    locks = [ROOT / name for name in (*RUNTIME, *([DEVELOPMENT] if chosen.dev else []))]
    if chosen.advisories is None:
        return _run_pip_audit(locks)
    published = newest(chosen.advisories)
    found = audit(chosen.advisories, locks)
    told = "\n".join(found) or "nothing is known of the locked versions"
    sys.stdout.write(f"{told}\n(the newest advisory of the copy is of {published})\n")
    return 1 if found else 0


def _run_pip_audit(locks: Iterable[Path]) -> int:
    files = [part for lock in locks for part in ("-r", str(lock))]
    options = ("--strict", "--disable-pip", "--require-hashes", "--progress-spinner", "off")
    command = [sys.executable, "-m", "uv", "tool", "run", PIP_AUDIT, *options, *files]
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.stderr.write(
            "audit: see above. Where nobody can be asked from here, give a copy of PyPA's advisory"
            ' database: make audit ARGS="--advisories FOLDER"\n'
        )
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
