"""What every block of the configuration has in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from blizzard_core.storage.opening import normalize_uri, problems_of

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]
_UNITS = {"secs": "s", "hours": "h", "days": "d"}


def _one_spelling(uri: str) -> str:
    """A place as everything behind the settings compares, stores and shows it.

    One that something is wrong with stays as written, for the error that names it.
    """
    return uri if not uri or problems_of(uri, {}) else normalize_uri(uri)


Uri = Annotated[str, AfterValidator(_one_spelling)]


class Settings(BaseModel):
    """Unknown keys are refused, values never change, and no error quotes one (secrets).

    No number is endless: nothing can wait for that long, or be cut into that many.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _with_units(cls, data: Any) -> Any:
        """Keys that said the unit of their number, as `poll_interval_secs`, before 0.1.0."""
        if not isinstance(data, dict):
            return data
        found, said = dict(data), dict[str, str]()
        for key in data:
            name, _, unit = str(key).rpartition("_")
            new = "cooldown" if name == "abstinent" else name
            if unit in _UNITS and new in cls.model_fields and key not in cls.model_fields:
                if new in found:
                    raise ValueError(f"give {said.get(new, new)} or {key}, not both")
                said[new] = key
                value = found.pop(key)
                is_number = re.fullmatch(r"-?\d+(\.\d+)?", str(value)) is not None
                found[new] = f"{value}{_UNITS[unit]}" if is_number else value
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _check_no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` is no number, though Python counts it as 1."""
        if isinstance(value, bool):
            kinds = list(_kinds(cls.model_fields[str(info.field_name)].annotation))
            number = next((kind for kind in ("int", "float") if kind in kinds), None)
            if number and "bool" not in kinds:
                raise PydanticCustomError(f"{number}_type", "no number")
        return value


def _kinds(annotation: Any) -> Iterator[str]:
    """The names of the types that a value may have."""
    if get_origin(annotation) in {Union, UnionType, Annotated}:
        for each in get_args(annotation):
            yield from _kinds(each)
    elif isinstance(annotation, type):
        yield annotation.__name__
