"""What every block of the configuration has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]


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
