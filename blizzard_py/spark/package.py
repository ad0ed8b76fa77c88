"""The package as a file that executors can import it from."""

from __future__ import annotations

import zipfile
from pathlib import Path

import blizzard_py


def packed(folder: Path) -> Path:
    """The package as a zip file in ``folder``; its dependencies are the image's business."""
    root = Path(blizzard_py.__file__).parent
    target = folder / f"{root.name}.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for module in sorted(root.rglob("*.py")):
            archive.write(module, module.relative_to(root.parent))
    return target
