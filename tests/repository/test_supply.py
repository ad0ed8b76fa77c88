"""Supply chain: advisories for locked packages, images by digest."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.repository import audit
from tests.repository.locked import DEVELOPMENT, ROOT, RUNTIME, Package, packages
from tests.repository.pins import unpinned

DIGEST = f"sha256:{'0' * 64}"
ADVISORY: dict[str, Any] = {
    "id": "PYSEC-2026-1",
    "aliases": ["CVE-2026-0001"],
    "published": "2026-01-02T00:00:00Z",
    "affected": [
        {
            "package": {"ecosystem": "PyPI", "name": "Some_Package"},
            "ranges": [
                {"type": "GIT", "events": [{"introduced": "0"}]},
                {
                    "type": "ECOSYSTEM",
                    "events": [
                        {"introduced": "2.0"},
                        {"fixed": "2.0.3"},
                        {"introduced": "0"},
                        {"fixed": "1.2"},
                    ],
                },
            ],
            "versions": ["3.0rc1"],
        }
    ],
}


@pytest.mark.parametrize("lock", [*RUNTIME, DEVELOPMENT])
def test_every_lock_is_understood_line_by_line(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert len(list(packages(ROOT / lock))) == len(re.findall(r"^[^\s#].*==", text, re.MULTILINE))


def test_a_line_without_a_digest_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "r.lock").write_text("a==1\n")
    with pytest.raises(ValueError, match="a==1"):
        list(packages(tmp_path / "r.lock"))


@pytest.mark.parametrize(
    ("version", "affected"),
    [("1.0", True), ("1.2", False), ("2.0", True), ("2.0.3", False), ("3.0rc1", True)],
)
def test_advisories_are_about_versions(tmp_path: Path, version: str, *, affected: bool) -> None:
    assert audit.affects(ADVISORY, Package("some-package", version, "", ())) is affected
    assert not audit.affects(ADVISORY, Package("other", version, "", ()))
    folder = tmp_path / "vulns" / "some-package"
    folder.mkdir(parents=True)
    (folder / "PYSEC-2026-1.yaml").write_text(json.dumps(ADVISORY, indent=0))
    gone = ADVISORY | {"id": "PYSEC-2026-2", "withdrawn": "2026-01-03T00:00:00Z"}
    (folder / "PYSEC-2026-2.yaml").write_text(json.dumps(gone))
    (tmp_path / "r.lock").write_text(f"some-package=={version} \\\n    --hash={DIGEST}\n")
    found = audit.audit(tmp_path, [tmp_path / "r.lock"])
    expected = [f"some-package {version}: PYSEC-2026-1 (CVE-2026-0001)"] if affected else []
    assert found == expected
    assert audit.newest(tmp_path) == "2026-01-02"


def test_a_folder_without_advisories_is_no_clean_bill(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no vulns"):
        audit.newest(tmp_path)


def test_only_images_by_tag_are_reported(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy/kubernetes", tmp_path / "k")
    image = "registry.example.com/blizzard-penguin:0.1.0"
    assert unpinned(tmp_path / "k") == [
        f"local: {image} has no digest",
        f"replicas: {image} has no digest",
        f"spark-on-kubernetes: {image} has no digest",
    ]
    base = tmp_path / "k/base/kustomization.yaml"
    base.write_text(base.read_text().replace("newTag: 0.1.0", f"digest: {DIGEST}"))
    assert unpinned(tmp_path / "k") == [f"spark-on-kubernetes: {image} has no digest"]
    config = tmp_path / "k/overlays/spark-on-kubernetes/config.yaml"
    pinned = image.replace(":0.1.0", f"@{DIGEST}")
    config.write_text(config.read_text().replace(image, pinned))
    assert unpinned(tmp_path / "k") == []
