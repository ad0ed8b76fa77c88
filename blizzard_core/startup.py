"""What both command lines do before they import anything that takes time.

Light on purpose: it is there for the second in which Python still imports the rest.
"""

from __future__ import annotations

import io
import os
import sys
from types import TracebackType


def started() -> None:
    """Have Ctrl-C end this process without pages of a trace, and the standard streams be there.

    Whoever calls a command by mistake takes it back at once. From the first step of a command on
    `blizzard_core.cli` and `blizzard_core.signals` see to it.
    """
    sys.excepthook = _told_but_interruptions
    _opened_streams()


def _told_but_interruptions(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def _opened_streams() -> None:
    """Give streams that were closed by whoever started us (``>&-``) a file.

    Otherwise the next file that is opened gets the number, and what is printed is written to it.
    Results that nobody takes are an error, as with other commands, logs are not.
    """
    for number, (name, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None and os.open(os.devnull, flags) == number:
            # Unbuffered: what could not be written is not tried again at the end.
            raw = io.FileIO(number, "r" if name == "stdin" else "w", closefd=False)
            setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
