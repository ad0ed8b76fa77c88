"""Cost of the page of very many sources: ``python -m benchmarks.page [SOURCES]``.

Each answer is asked for over HTTP, as a browser does. *Made* is the first one and every one that
comes a second later, *kept* are those in between, however many ask; then 20 ask at the same time.
The processor's part of making one is told as well: on a busy machine the rest is waiting for it.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from blizzard_core.observability.status_page import PREPARED_SECS
from blizzard_core.observability.web import Server
from tests.support.page_samples import names, panel

TIMES = 15
CLIENTS = 20


def timed_get(port: int, path: str) -> tuple[float, int]:
    """Milliseconds until the whole answer is there, and its bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.connect()
    began = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    size = len(response.read())
    took = (time.perf_counter() - began) * 1000
    connection.close()
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status}")
    return took, size


def row(what: str, size: int, took: Sequence[float]) -> None:
    middle, worst = statistics.median(took), max(took)
    print(f"| {what} | {size / 1000:,.0f} kB | {middle:,.1f} ms | {worst:,.1f} ms |")


def main(count: int) -> None:
    shown = panel(count)
    with shown.providers.open(), Server("127.0.0.1:0", shown) as server:
        one = f"/targets/{names(count)[0]}"
        for path in ("/overview.json", f"{one}/past.json"):  # what is read is there from now on
            timed_get(server.port, path)
        time.sleep(2 * PREPARED_SECS)
        print(f"{count} sources\n\n| answer | size | median | worst |\n|---|---|---|---|")
        for path in ("/", f"{one}/status.json", f"{one}/past.json"):
            answers = [timed_get(server.port, path) for _ in range(TIMES)]
            row(f"`{path.replace(one, '/targets/NAME')}`", answers[0][1], [t for t, _ in answers])
        for path in ("/overview.json", "/status.json"):
            made, kept = [], []
            for _ in range(TIMES):
                time.sleep(PREPARED_SECS)
                made.append(timed_get(server.port, path))
                kept.append(timed_get(server.port, path))
            row(f"`{path}`, made", made[0][1], [t for t, _ in made])
            row(f"`{path}`, kept", kept[0][1], [t for t, _ in kept])
        for what, make in (("overview.json", shown.overview), ("status.json", shown.to_json)):
            spent = []
            for _ in range(TIMES):
                began = time.process_time()
                size = len(json.dumps(make()))
                spent.append((time.process_time() - began) * 1000)
            row(f"`/{what}`, made, of the processor", size, spent)
        with ThreadPoolExecutor(CLIENTS) as pool:
            paths = ["/overview.json"] * CLIENTS * TIMES
            crowd = list(pool.map(lambda path: timed_get(server.port, path), paths))
        row(f"`/overview.json`, {CLIENTS} at once", crowd[0][1], [t for t, _ in crowd])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
