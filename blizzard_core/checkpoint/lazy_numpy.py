"""numpy, loaded when it is first used: ``from blizzard_core.checkpoint.lazy_numpy import np``.

Loading it takes a sixth of ``status``, and a source that has done nothing has no digests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("numpy"), name)

    np = _Numpy()
