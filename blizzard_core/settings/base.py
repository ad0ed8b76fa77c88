"""What every block of the configuration has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from blizzard_core.storage.opening import normalize_uri, problems_of

# Names become parts of file names and of Spark job groups.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Options = dict[str, str]


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
