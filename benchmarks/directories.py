"""CPU of a poll over old files on a local disk, read each time and from memory.

    python -m benchmarks.directories          # 30 seconds; the directory must be on a real disk

Nothing is new. The first time is that of a storage that remembers nothing, which is what a poll
takes on file systems whose times are not trusted. Medians of nine polls.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.discovery import table
from benchmarks.discovery_cases import all_done
from blizzard_core.storage.folder_cache import has_true_times
from blizzard_core.storage.local import LocalStorage
from blizzard_core.watermark.progress import Progress
from blizzard_core.watermark.scan import Scan, scan

# Directories, and files in each.
_CASES = ((1, 200_000), (64, 500), (2_000, 20))
_ROUNDS = 9
_CONCURRENCY = 8


def measure(root: str, directories: int, files: int) -> list[str]:
    """Return the line of one case. Its files are made below ``root``."""
    paths = [f"p={at:05}/{file:09}" for at in range(directories) for file in range(files)]
    for path in paths:
        Path(root, path).parent.mkdir(exist_ok=True)
        Path(root, path).touch()
    progress = all_done(Progress(depth=1), paths)

    def poll(storage: LocalStorage) -> Scan:
        return scan(storage, progress, lambda _file: True, _CONCURRENCY)

    held = storage_of(root)
    poll(held)
    read, again = cpu_of(lambda: poll(storage_of(root))), cpu_of(lambda: poll(held))
    names = [f"{poll(storage).keys:,}" for storage in (storage_of(root), held)]
    return [f"{directories:,}", f"{files:,}", *names, f"{read:.2f}", f"{again:.2f}"]


def storage_of(root: str) -> LocalStorage:
    """Return a storage whose clock is ahead: nothing changes the directories, so they are old."""
    return LocalStorage(root, clock=lambda: time.time() + 60)


def cpu_of(action: Callable[[], object]) -> float:
    """Return the median CPU time in milliseconds."""
    spent = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        action()
        spent.append(time.process_time() - began)
    return statistics.median(spent) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", help="a directory on the disk to measure")
    options = parser.parse_args()
    lines = []
    for directories, files in _CASES:
        with tempfile.TemporaryDirectory(dir=options.directory) as root:
            if not has_true_times(root):
                raise SystemExit(f"{root}: its times are not trusted; choose another --directory")
            lines.append(measure(root, directories, files))
    header = ["directories", "files each", "names read", "from memory", "ms read", "from memory"]
    print(table(header, lines))


if __name__ == "__main__":
    main()
