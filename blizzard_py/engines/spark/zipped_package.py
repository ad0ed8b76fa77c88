"""The packages that kernels need, as one file that executors can import them from."""

from __future__ import annotations

import zipfile
from pathlib import Path

import blizzard_core
import blizzard_py


def zipped_packages(folder: Path) -> Path:
    """Both as a zip file in ``folder``; their dependencies are the image's business."""
    target = folder / "blizzard.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in (blizzard_core.__file__, blizzard_py.__file__):
            root = Path(file).parent
            for part in sorted([*root.rglob("*.py"), *root.rglob("*.wasm")]):
                archive.write(part, part.relative_to(root.parent))
    return target
