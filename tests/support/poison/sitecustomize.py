"""Start-up code of interpreters with this folder in their path: some lines kill the parser."""

import os
import signal
from typing import Any

import pyarrow.json as pj

MARK = b"POISON"
_read_json = pj.read_json


def read_json(source: Any, **options: Any) -> Any:
    if MARK in source.read():
        os.kill(os.getpid(), signal.SIGKILL)
    source.seek(0)
    return _read_json(source, **options)


pj.read_json = read_json
