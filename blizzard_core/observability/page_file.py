"""The status page as one file without external assets, and its content security policy.

The page is written in parts beside this module and put together once. The policy names its script
and its style by their hashes, so injected markup would have no effect.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from blizzard_core.errors import BlizzardError

# In the order in which they build on each other.
_SCRIPTS = (
    "dom",
    "notices",
    "units",
    "card",
    "overview",
    "event_time",
    "letters",
    "partitions",
    "detail",
    "story",
    "main",
)


def page() -> tuple[bytes, str]:
    """Return the status page and the policy that allows only its own script and style."""
    folder = files("blizzard_core.observability") / "page"
    style = _lean((folder / "style.css").read_text("utf-8"))
    script = "".join(_lean((folder / f"{name}.js").read_text("utf-8")) for name in _SCRIPTS)
    text = (folder / "page.html").read_text("utf-8")
    text = text.replace("<style></style>", f"<style>{style}</style>", 1)
    text = text.replace("<script></script>", f"<script>{script}</script>", 1)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_of('script', text)}",
            f"style-src {_hash_of('style', text)}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return text.encode(), policy


def _lean(text: str) -> str:
    """Return the text without indentation, blank lines, and lines that are only a comment."""
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def page_id() -> str:
    """Return the id of this version of the page; an open page of another version reloads."""
    return hashlib.sha256(page()[0]).hexdigest()[:16]


def _hash_of(element: str, text: str) -> str:
    found = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    if len(found) != 1:
        raise BlizzardError(f"the status page has {len(found)} <{element}> elements, not one")
    digest = hashlib.sha256(found[0].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
