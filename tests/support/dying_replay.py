"""``python -m tests.support.dying_replay N …``: ``blizzard`` is killed at its N-th change.

Without Spark, which is not the point here.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.engines import spark
from tests.support.direct_engine import DirectEngine


class Engine(DirectEngine):
    def stop(self) -> None:
        """Nothing to stop."""


def arm(number: int) -> None:
    left = [number]

    def counted(name: str) -> None:
        original = getattr(LocalStorage, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return original(*args, **kwargs)

        setattr(LocalStorage, name, wrapped)

    for name in ("put_atomic", "rename", "delete", "delete_tree"):
        counted(name)


if __name__ == "__main__":
    arm(int(sys.argv[1]))
    spark.SparkEngine = lambda *_: Engine()  # type: ignore[assignment,misc]
    main(sys.argv[2:])
