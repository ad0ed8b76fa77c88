"""Removal of secrets from text: own values, and credentials in foreign messages.

There are two filters. `redacted` knows the shapes of credentials in messages of stores and their
clients: signatures in URLs (Azure's ``sig``, presigned AWS and Google URLs), ``Authorization``
headers, connection strings, ``name=value`` pairs with a secret name, private keys. `learn` adds
the secret values of this process's configuration, which are then masked in any encoding.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from blizzard_core.text import one_line, shell_word, shortened

MASK = "***"

_KEYS = (
    r"(?:account|access|api|private|master|storage|sse[._-]?customer|subscription|functions?"
    r"|client|shared)[._-]?key"
)
# Names whose values are secret, as keys of logged facts and as storage options.
SECRET_NAME = re.compile(
    r"secret|token|password|passwd|pwd|passphrase|sas|credential"
    rf"|{_KEYS}|authorization|signature|(?<![A-Za-z])(?:pass|cookie)(?![A-Za-z])",
    re.IGNORECASE,
)
# Names of places of credentials, not of credentials.
_PLACE_NAME = re.compile(r"credentials$|(path|file|provider|type|url|uri)$", re.IGNORECASE)
# Shorter values are as likely a word of the message as a secret.
_MIN_LEARNT = 8
# A line of a key has 64 characters, one of a document of credentials is hardly a message's.
_MIN_LINE = 24

# No pattern depends on the beginning of a name.
_NAMES = ("secret", "pass", "pwd", "key", "token")
_TELLING = (
    r"(?:secret|password|passwd|(?<![A-Za-z])pwd|passphrase"
    rf"|{_KEYS}|sas[._-]?token"
    r"|session[._-]?token|security[._-]?token|auth[._-]?token)[\w.-]{0,40}"
)

# First substrings in lower case: most texts have none of them. Then the pattern, tried only if one
# is there, and its replacement.
_PATTERNS = (
    # user:password@ of a URI; the user may be the secret, and the password have a slash in it.
    (
        ("@",),
        re.compile(
            r"(?<=://)(?:[^/@\s:]{0,256}:(?!\d{1,5}(?:[/?#\s]|$))[^@\s]{0,256}|[^/@\s]{1,512})@"
            r"|(?<=:thin:)[^@\s]{1,512}@"
        ),
        f"{MASK}@",
    ),
    (
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
    # A header's whole value: schemes differ, and all of it is credential.
    (
        ("bearer", "basic", "sharedkey"),
        re.compile(r"\b(Bearer|Basic|SharedKey(?:Lite)?)\s+[\w.~+/:=-]{16,}", re.IGNORECASE),
        rf"\1 {MASK}",
    ),
    (
        ("authorization",),
        re.compile(
            r"\b(Authorization[\"']?\s*[:=]\s*[\"']?[A-Za-z]+)\s+(?!\*\*\*)[^\s\"',=]{8,}",
            re.IGNORECASE,
        ),
        rf"\1 {MASK}",
    ),
    # All cookies of a header: which of them is a credential only their site knows.
    (
        ("cookie",),
        re.compile(
            r"\b(Cookie[\"']?\s*(?:[:=]|,(?=\s*[\"']))\s*[\"']?)"
            r"(?=[^\s=;,\"']{1,128}=)(?!\*\*\*)[^\r\n\"']+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Keys, codes and tokens in a query, where short ones are no credential: a status, a page.
    (
        ("key", "code", "auth", "token"),
        re.compile(
            r"((?:[?&]|%3F|%26)(?:key|code|auth|token)(?:=|%3D))(?!\*\*\*)"
            r"(?:(?!%26)[^&\s\"'<>,;)]){8,}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # The short name of a password: the last word of a name, and what stands behind "=" or in
    # quotes.
    (
        ("pass",),
        re.compile(
            r"((?<![A-Za-z0-9])pass(?:[\"']?\s*(?:=|%3D)\s*[\"']?"
            r"|[\"']\s*[:,]\s*[\"']))(?!\*\*\*)"
            r"(?:(?<=\")[^\"]+|(?<=')[^']+|(?:(?!%26)[^\s\"'&,;<>(){}\[\]])+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Parts of presigned URLs, alone or percent-encoded inside another URL.
    (
        ("sig", "credential", "token", "accesskeyid", "accessid"),
        re.compile(
            r"(?:(?<![A-Za-z0-9])|(?<=%3F)|(?<=%26))(sig|Signature|Credential"
            r"|X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId"
            r"|GoogleAccessId|access_token|refresh_token|id_token)(=|%3D)[^&\s\"'<>,;)]+",
            re.IGNORECASE,
        ),
        rf"\1\2{MASK}",
    ),
    # name=value, "name": "value" and 'name', 'value' with a telling name; a value in quotes whole.
    (
        _NAMES,
        re.compile(
            rf"({_TELLING}[\"']?\s*(?:[:=]|%3D|,(?=\s*[\"']))\s*(?:\[\s*)?[\"']?)(?!\*\*\*)"
            r"(?:(?<=\")[^\"]+|(?<=')[^']+|(?:[^\s\"'&,;<>(){}\[\]]|&(?![\w.-]+=))+)",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # {"name": {…}}: the whole object.
    (
        _NAMES,
        re.compile(rf"({_TELLING}[\"']\s*:\s*\{{)[^{{}}]*(?=\}})", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    # As in a sentence; only values with letters and digits. Problems name the place of a setting.
    (
        ("password", "passphrase", "secret"),
        re.compile(
            r"\b((?:password|passphrase|secret)(?:\s+is)?\s+[\"']?)"
            r"(?!\([^()\n]*\bline \d+\))"
            r"(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])[^\s\"']{8,}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # "token" is also a word of parsers: only long values with a digit.
    (
        ("token",),
        re.compile(
            r"(?<![A-Za-z])(token[\"']?\s*[:=]\s*[\"']?)(?=[^\s\"'&,;]*\d)"
            r"[^\s\"'&,;<>(){}\[\]]{12,}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Tokens that are known by their beginning: JSON web tokens, Google's (and its keys of APIs),
    # GitHub's, GitLab's.
    (
        ("eyj", "ya29.", "aiza", "gh", "glpat-"),
        re.compile(
            r"\beyJ[\w-]{5,}\.[\w-]{6,}(?:\.[\w-]*)?|\bya29\.[\w-]{8,}"
            r"|\bAIza[\w-]{30,}|\bgh[pousr]_\w{20,}|\bglpat-[\w-]{16,}"
        ),
        MASK,
    ),
    (
        ("stringtosign", "sessiontoken", "accesskey"),
        re.compile(r"<(SessionToken|SecretAccessKey|AWSAccessKeyId|StringToSign)>[^<]*"),
        rf"<\1>{MASK}",
    ),
    # Ids of AWS keys, wherever they stand.
    (("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), MASK),
)

_learnt: set[str] = set()


def learn(options: Mapping[str, str]) -> None:
    """Mask the values of secret-looking options in every text from now on."""
    learn_values(
        value
        for name, value in options.items()
        if SECRET_NAME.search(name) and not _PLACE_NAME.search(name)
    )


def learn_values(values: Iterable[str | None]) -> None:
    """Mask these values, whatever their names, in every text from now on."""
    for value in values:
        if value is not None and len(value) >= _MIN_LEARNT:
            _learnt.update(_dressed(value))


def _dressed(value: str) -> Iterator[str]:
    """Yield a secret's spellings: in a URL, in JSON, in Python's repr, line by line."""
    yield value
    yield from (quote(value, safe=""), quote(value), quote_plus(value))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (repr(value)[1:-1], repr(value.encode("utf-8", "surrogateescape"))[2:-1])
    yield base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
    yield from (line for line in value.splitlines() if len(line) >= _MIN_LINE)


def forget() -> None:
    """Forget all values; for tests, which share a process."""
    _learnt.clear()


def redacted_word(text: str) -> str:
    """Return the text without secrets, as one shell word that is safe to paste.

    Redaction comes first. In a quoted word it might remove a quote, and the shell would run the
    rest.
    """
    return shell_word(redacted(text))


def redacted(text: str) -> str:
    """Return the text without credentials."""
    # The longest first: one secret may be a part of another.
    for secret in sorted(_learnt, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, MASK)
    lowered = text.lower()
    for signs, pattern, replacement in _PATTERNS:
        if any(sign in lowered for sign in signs):
            text = pattern.sub(replacement, text)
    return text


def error_text(error: BaseException) -> str:
    """Return an error's message without credentials, on one line, shortened."""
    return clean_text(str(error) or type(error).__name__)


def clean_text(text: str) -> str:
    """Clean a message as `error_text` does."""
    return shortened(one_line(redacted(text[:20_000])))
