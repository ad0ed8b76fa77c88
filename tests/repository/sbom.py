"""``make sbom``: what the image has of Python, from its lock, as CycloneDX 1.6 in sbom.json."""

from __future__ import annotations

import json
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from tests.repository.locked import ROOT, Package, packages

LOCK = "requirements-image.lock"
FILE = "sbom.json"


def bill(lock: Path) -> dict[str, Any]:
    """The bill of materials; the same lock makes the same bill, with the same serial number."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    serial = uuid.uuid5(uuid.NAMESPACE_OID, lock.read_text())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": project["name"],
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [_component(package) for package in packages(lock)],
    }


def _component(package: Package) -> dict[str, Any]:
    purl = f"pkg:pypi/{package.name}@{package.version}"
    # `hashes` of a component are of one file; a lock has those of every file it may be.
    properties = [{"name": "lock:hash", "value": each} for each in package.hashes]
    if package.marker:
        properties.append({"name": "lock:marker", "value": package.marker})
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "properties": properties,
    }


def main() -> int:
    """Write the bill, and say where."""
    found = bill(ROOT / LOCK)
    (ROOT / FILE).write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{FILE}: {len(found['components'])} packages of {LOCK}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
