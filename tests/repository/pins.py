"""``make pins ARGS=FOLDER``: check that manifests name every image by its digest.

This repository has no registry and so no digest of its own: a copy of deploy/kubernetes gets
them, and this says which are missing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

OVERLAYS = ("local", "replicas", "spark-on-kubernetes")
_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}")


def images(folder: Path) -> Iterator[str]:
    """Yield the images of an overlay's pods, and the image of Spark's executors."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"pins: {done.stderr.strip()}")
    for found in yaml.safe_load_all(done.stdout):
        if found["kind"] == "ConfigMap":
            yield from _of_spark(found.get("data", {}))
        pod = found.get("spec", {}).get("template", {}).get("spec", {})
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            yield container["image"]


def _of_spark(data: dict[str, str]) -> Iterator[str]:
    for text in data.values():
        document: Any = yaml.safe_load(text)
        spark = document.get("spark") if isinstance(document, dict) else None
        image = ((spark or {}).get("conf") or {}).get("spark.kubernetes.container.image")
        if image:
            yield image


def unpinned(folder: Path) -> list[str]:
    """Return a line for each image of an overlay that only a tag names."""
    return [
        f"{overlay}: {image} has no digest"
        for overlay in OVERLAYS
        if (folder / "overlays" / overlay).is_dir()
        for image in sorted(set(images(folder / "overlays" / overlay)))
        if not _DIGEST.fullmatch(image)
    ]


def main() -> int:
    """0 if all have one."""
    if len(sys.argv) != 2:
        sys.exit("pins: give your copy of deploy/kubernetes: make pins ARGS=FOLDER")
    folder = Path(sys.argv[1])
    if not (folder / "overlays").is_dir():
        sys.exit(f"pins: {folder} has no overlays; give your copy of deploy/kubernetes")
    found = unpinned(folder)
    sys.stdout.write("".join(f"{line}\n" for line in found) or "every image has a digest\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
