"""Many sources read their checkpoints at the same moment, at the start of a daemon."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, since it ends the process where it fails. Types that refer to each other
# in text take Python to find out, and Python changes threads there.
_STARTS = """
import sys, threading
from dataclasses import field, make_dataclass
from blizzard_core.checkpoint.decode import decode_document

sys.setswitchinterval(1e-6)
for turn in range(300):
    name = f"Inner{turn}"
    inner = make_dataclass(name, [(f"x{n}", "int", field(default=0)) for n in range(20)])
    globals()[name] = inner
    inner.__module__ = __name__
    kind = make_dataclass("Kind", [(f"y{n}", f"list[{name}]") for n in range(20)])
    kind.__module__ = __name__
    document = {f"y{n}": [{f"x{n}": n for n in range(20)}] for n in range(20)}
    begin = threading.Barrier(8)

    def read():
        begin.wait()
        assert decode_document(kind, document, "here").y19[0].x19 == 19

    threads = [threading.Thread(target=read) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("done")
"""


def test_threads_decode_new_types_concurrently() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTS], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
