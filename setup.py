"""The long description for package indexes: the README with absolute links.

Everything else is in `pyproject.toml`.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
# A picture or a link whose target is neither absolute nor an anchor.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def long_description() -> str:
    """Return the README; relative targets point into the repository, at the tag of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository, tag = project["urls"]["Repository"], f"v{project['version']}"

    def absolute(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/{tag}/{target})"

    return LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


setup(long_description=long_description(), long_description_content_type="text/markdown")
