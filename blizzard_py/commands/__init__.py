"""Commands of ``blizzard`` that people run by hand, a module for each group."""

from blizzard_py.commands.backfill import backfill
from blizzard_py.commands.checkpoint import checkpoint
from blizzard_py.commands.convert import convert
from blizzard_py.commands.demo import demo
from blizzard_py.commands.dlq import dlq
from blizzard_py.commands.files import files
from blizzard_py.commands.ingest import ingest
from blizzard_py.commands.init import init
from blizzard_py.commands.rename import rename
from blizzard_py.commands.replay import replay
from blizzard_py.commands.requests import requests
from blizzard_py.commands.state import state
from blizzard_py.commands.up import up
from blizzard_py.commands.watch import watch
from blizzard_py.commands.watermark import watermark

__all__ = [
    "backfill",
    "checkpoint",
    "convert",
    "demo",
    "dlq",
    "files",
    "ingest",
    "init",
    "rename",
    "replay",
    "requests",
    "state",
    "up",
    "watch",
    "watermark",
]
