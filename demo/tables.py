"""`make demo-tables`: a table of PostgreSQL, changed while it is read, into a Delta table.

A server of the demo's own is started and removed, and both daemons run meanwhile. The lake
is made anew below ``.demo-tables/`` (or ``$DEMO_DIR``) and kept. Exits 1 if a daemon fails or
the lake does not hold each version of each row once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from blizzard_py.demo.daemons import ask
from blizzard_py.demo.report import table_size
from blizzard_py.demo.stage import DemoFailedError, staged, step
from demo import postgresql, shop
from demo.running import RunningDaemon, running
from demo.tables_report import show_check, show_windows

CONFIG = Path("configs/demo-tables.yaml")
# A loaded machine takes a minute to start Spark; a daemon that is stuck is told after this.
_PATIENCE_SECS = 300


class Demo:
    """The steps of the demo, printed as they happen."""

    def __init__(
        self, place: Path, console: Console, server: postgresql.Server, blizzard: RunningDaemon
    ) -> None:
        self.console = console
        self.step = partial(step, console)
        self.server = server
        self.blizzard = blizzard
        self.lake = place / "lake" / "orders"

    def windows(self) -> list[dict[str, Any]]:
        """Return the log's `batch_done` events, one a window."""
        return self.blizzard.events("batch_done")

    def read(self) -> None:
        """Wait until as many versions were published as there are."""
        expected = shop.versions(self.server)
        self.until(lambda: sum(batch["rows"] for batch in self.windows()) >= expected)

    def until(self, reached: Callable[[], bool]) -> None:
        """Look every so often; raises `DemoFailedError` when it takes too long."""
        deadline = time.monotonic() + _PATIENCE_SECS
        while not reached():
            if time.monotonic() > deadline:
                raise DemoFailedError(f"nothing more came for {_PATIENCE_SECS} s")
            time.sleep(0.1)

    def change(self, text: str, *statements: str) -> None:
        """Change rows, and wait until what became of them was read."""
        with self.step(f"{text}: written, read"):
            self.server.execute(*statements)
            self.read()

    def late_commit(self) -> None:
        """Commit a slow transaction after faster ones: the window waits for it."""
        late = (shop.updating(1, 400, "paid"), shop.inserting(100))
        with shop.transaction(self.server, *late):
            with self.step("a transaction changes 500 rows and stays open; others insert 200"):
                self.server.execute(shop.inserting(200))
                (highest,) = self.server.row("SELECT max(updated_at) FROM orders")
                sources = ask("blizzard", "plan", CONFIG)["pipelines"]["orders"]["sources"]
            held_by = sources["shop"]["bound"]["held_by"]
            self.console.print(f"  no window passes it: held by {held_by}", soft_wrap=True)
        before = sum(batch["rows"] for batch in self.windows())
        with self.step("it commits, at last: all 700 are read"):
            self.read()
        (passed,) = self.server.row(f"SELECT count(*) FROM history WHERE updated_at < '{highest}'")
        self.console.print(
            f"  a reader that keeps max(updated_at) had lost {passed - before} of them",
        )

    def run(self) -> bool:
        """Run the demo; return whether the lake holds each version of each row once."""
        with self.step(f"Spark starts, and the first window of {shop.FIRST_ROWS:,} rows is read"):
            self.read()
        self.change(
            "500 rows inserted, 300 updated", shop.inserting(500), shop.updating(200, 499, "packed")
        )
        self.late_commit()
        self.change("250 rows updated again", shop.updating(300, 549, "sent"))
        with self.step("penguin commits what is left"):
            expected = shop.versions(self.server)
            self.until(lambda: self.lake_rows() >= expected)
        self.console.print()
        show_windows(self.console, self.windows())
        return show_check(self.console, self.server, self.lake)

    def lake_rows(self) -> int:
        """Rows of the Delta table now."""
        return table_size(self.lake)[1] if (self.lake / "_delta_log").is_dir() else 0


def run(place: Path, console: Console) -> bool:
    """Server, daemons and the demo between them."""
    with postgresql.running() as server:
        shop.make(server)
        os.environ |= {
            "DEMO_DIR": str(place.absolute()),
            "DEMO_PORT": str(server.port),
            "DEMO_PASSWORD": server.password,
        }
        logs = place / "logs"
        console.print(
            f"PostgreSQL on port {server.port}, a table of {shop.FIRST_ROWS:,} orders;"
            f" blizzard run {CONFIG}, penguin run {CONFIG}",
            soft_wrap=True,
        )
        with (
            running("penguin", CONFIG, logs / "penguin.log"),
            running("blizzard", CONFIG, logs / "blizzard.log") as blizzard,
        ):
            return Demo(place, console, server, blizzard).run()


def main() -> int:
    """Run the demo; the process's exit code."""
    place = Path(os.environ.get("DEMO_DIR") or ".demo-tables")
    code = staged(place, run, "lake", "Each version of each row, once")
    if code == 0:
        console = Console(highlight=False)
        console.print(f"The server is gone; the lake stays in {place}/lake/orders.", soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
