"""Hosts of next pages and redirects; credentials never leave their origin."""

from __future__ import annotations

import pytest

from blizzard_core.errors import SourceError
from blizzard_py.connections.http.hosts import LinkTarget, target
from tests.blizzard_py.connections.http.world import api_at

API = api_at(
    "https://crm.example/v1", allowed_hosts=("files.example", "cdn.example:8443", "[::1]:99")
)
HERE = "https://crm.example/v1/orders?page=1"


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("?page=2", "https://crm.example/v1/orders?page=2"),
        ("next/2", "https://crm.example/v1/next/2"),
        ("/v1/x", "https://crm.example/v1/x"),
        ("//crm.example/x", "https://crm.example/x"),
        (" https://CRM.example:443/v1/x#part ", "https://crm.example/v1/x"),
        ("https://crm.example/x?at=https://evil.example/", None),
    ],
)
def test_links_to_the_own_origin(link: str, url: str | None) -> None:
    assert target(API, HERE, link, "page 1") == LinkTarget(url or link, ours=True)


@pytest.mark.parametrize(
    "link",
    ["https://files.example/x", "https://cdn.example:8443/x", "https://[::1]:99/x"],
)
def test_allowed_hosts_get_no_credentials(link: str) -> None:
    assert target(API, HERE, link, "page 1") == LinkTarget(link, ours=False)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("https://evil.example/x", "another host, evil.example:443"),
        ("//evil.example/x", "another host"),
        ("https://crm.example:8443/x", "another host, crm.example:8443"),
        ("https://crm.example.evil.example/", "another host"),
        ("https://crm.example./", "another host"),
        ("https://files.example:444/x", "another host"),
        ("https://cdn.example/x", "another host"),
        ("http://crm.example/x", "from https to http"),
        ("http://files.example/x", "from https to http"),
        ("https://u:p@crm.example/x", "with a user and a password"),
        ("https://crm.example@evil.example/", "with a user and a password"),
        ("https://crm.example\\@evil.example/", "with a user and a password"),
        ("https://evil.example\\@crm.example/", "with a user and a password"),
        ("file:///etc/passwd", "another scheme"),
        ("javascript:alert(1)", "another scheme"),
        ("https://crm.example:99999/", "another host"),
        ("https://[crm/", "another host"),
        ("https://[::1/", "not a URL"),
        ("https://crm.example:0/", "another host"),
        ("https://crm.example:x/", "not a URL"),
        ("https://crm.example/\x00", "not a URL"),
    ],
)
def test_everything_else_is_refused(link: str, told: str) -> None:
    with pytest.raises(SourceError, match="page 1: ") as caught:
        target(API, HERE, link, "page 1")
    assert told in str(caught.value)
    assert ":p@" not in str(caught.value)
