"""The docstrings of settings, read from their source.

The models do not keep them: reading sources costs each start as much as making the models.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def description(model: type[BaseModel], name: str) -> str:
    """Return the docstring of a field in one line; ``""`` if it has none."""
    found = (_docstrings(each).get(name) for each in model.__mro__ if issubclass(each, BaseModel))
    return next(filter(None, found), "")


@cache
def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    (block,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(block.body)  # type: ignore[attr-defined]  # a class has one
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
