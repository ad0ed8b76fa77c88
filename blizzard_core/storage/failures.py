"""Errors of object stores, converted to this project's errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

from blizzard_core.errors import (
    AccessDenied,
    BucketMissing,
    Conflict,
    NotFound,
    StorageError,
    Unavailable,
)
from blizzard_core.redact import redacted
from blizzard_core.text import shortened

# An answer may be an HTML page.
_TEXT_CHARACTERS = 1000

# Error codes of S3 and Azure that mean "not allowed", whatever the HTTP status around them.
_DENIED = frozenset(
    {
        "AccessDenied",
        "AuthenticationFailed",
        "AuthorizationFailure",
        "AuthorizationPermissionMismatch",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidIdentityToken",
        "InvalidToken",
        "UnrecognizedClientException",
        "TokenRefreshRequired",
        "401",
        "403",
    }
)
_MISSING_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
_MISSING = frozenset({"NoSuchKey", "BlobNotFound", "NotFound", "404"})
_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialUnavailableError",
        "DefaultCredentialsError",
    }
)
# Exceptions of clients that have credentials, or a provider of them, and still fail.
_STALE_CREDENTIALS = frozenset(
    {
        "ClientAuthenticationError",
        "CredentialRetrievalError",
        "MalformedError",
        "MetadataRetrievalError",
        "RefreshError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
# The only parts of such messages that are shown; the rest may contain secrets.
_REASON = re.compile(r"\b(?:AADSTS\d+|invalid_grant|invalid_client|unauthorized_client)\b")
_CLIENT_SETTINGS = frozenset(
    {
        "ConfigNotFound",
        "ConfigParseError",
        "InvalidRegionError",
        "NoRegionError",
        "ProfileNotFound",
    }
)
_ARCHIVED = "the file lies in an archive; restore it at the store, and it is tried again"
_REGION = "the bucket is in another region; set AWS_REGION to that one"
_FULL = "the store is full, or a quota is used up; make room, or raise the quota"
# Codes with a misleading status, or with a text that lacks a remedy.
_MEANINGS = {
    "RequestTimeTooSkewed": "the clocks here and at the store differ too much; set this one right",
    "InvalidObjectState": _ARCHIVED,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "301": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "PermanentRedirect": _REGION,
    # Nothing was written, and nothing is known of another writer: AWS says to try again.
    "ConditionalRequestConflict": "another request changed the object just then; try again",
    "507": _FULL,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
}
_LACKING = frozenset({"NotImplemented", "501"})
_CONFLICT = frozenset(
    {
        "PreconditionFailed",
        "ConditionNotMet",
        "BlobAlreadyExists",
        "412",
    }
)


def wrap_error(uri: str, error: Exception) -> StorageError:
    """Convert an exception of a store's client to a `StorageError`.

    s3fs turns S3 codes into `OSError` and keeps the original as ``__cause__``. botocore raises its
    own classes for missing credentials and lost connections. gcsfs has a class per status, Azure a
    code and a status on its exceptions. Texts of foreign exceptions are left out of credential
    errors.
    """
    code = _error_code(error)
    missing = _missing_here(uri, error)
    if missing is not None:
        return AccessDenied(
            f"{uri}: there is no {missing}, where the store's client gets its credentials from;"
            " put it there, or correct what names it"
        )
    answer = _answered(uri, code, absent=isinstance(error, FileNotFoundError))
    if answer is not None:
        return answer
    if code in _MEANINGS:
        return Unavailable(f"{uri}: {code}: {_MEANINGS[code]}")
    if code.startswith("KMS."):
        return AccessDenied(
            f"{uri}: {code}: the key that it is encrypted with cannot be used; see that the key is"
            " enabled, and that these credentials may use it"
        )
    forbidden = _status(error) in {401, 403} or str(error).startswith("Forbidden")  # gcsfs' 403
    if code in _DENIED or forbidden or isinstance(error, PermissionError):
        return AccessDenied(
            f"{uri}: access denied ({code or _text(error)}); check the credentials, and"
            " that they may list, read and write there"
        )
    return _client_failed(uri, code, error)


def _client_failed(uri: str, code: str, error: Exception) -> StorageError:
    """Convert an error without an answer of the store, or with an unknown code."""
    name = type(error.__cause__ or error).__name__
    if name in _NO_CREDENTIALS:
        return AccessDenied(
            f"{uri}: no credentials found; set them in storage_options or the environment"
        )
    if name in _STALE_CREDENTIALS:
        reason = _REASON.search(str(error))
        described = f"{name}, {reason[0]}" if reason else name
        return AccessDenied(
            f"{uri}: the credentials are not accepted, or there was no getting them ({described});"
            " renew them, or give others in storage_options or the environment"
        )
    if name in _CLIENT_SETTINGS:
        return AccessDenied(
            f"{uri}: {name}: {_text(error)}; correct AWS_PROFILE, AWS_REGION or AWS's own"
            " configuration file"
        )
    if name == "HTTPClientError" and "No such file" in str(error):  # only TLS reads a file here
        return Unavailable(f"{uri}: a file with certificates is not there; correct AWS_CA_BUNDLE")
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return Unavailable(f"{uri}: timed out")
    return Unavailable(f"{uri}: {code or name}: {_text(error)}")


def _missing_here(uri: str, error: Exception) -> str | None:
    """Return the local file that a store's client needs and that is missing; None otherwise.

    It must not be taken for the object: a missing checkpoint means a first start. Clients that
    report a missing object in the same way name it by its container, and never by an absolute path.
    """
    name = error.filename if isinstance(error, FileNotFoundError) and "://" in uri else None
    if not isinstance(name, str | bytes):
        return None
    path = os.fsdecode(name)
    return path if Path(path).is_absolute() or "/" not in path else None


def _text(error: Exception) -> str:
    """Return a client's message, on one line and without secrets."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror and _error_code(error):
        text = error.strerror  # its number is s3fs' guess
    return shortened(" ".join(redacted(text).split()), _TEXT_CHARACTERS)


def _answered(uri: str, code: str, *, absent: bool) -> StorageError | None:
    """Return the error for the store's own code; None if it refused or failed the request."""
    if code in _MISSING_BUCKET:
        return bucket_missing(uri)
    if absent or code in _MISSING:
        return NotFound(f"{uri}: not found")
    if code in _LACKING:
        return StorageError(
            f"{uri}: this store does not implement what is asked of it ({code}); use a server, or a"
            " version of it, that has conditional PUT and ListObjectsV2; see"
            " docs/reference/guarantees.md"
        )
    if code in _CONFLICT:
        return Conflict(f"{uri}: changed by another writer")
    return None


def bucket_missing(uri: str) -> BucketMissing:
    """Return the error for a missing bucket of ``uri``."""
    return BucketMissing(f"{uri}: the bucket does not exist; create it, or correct the URI")


def _error_code(error: BaseException) -> str:
    """Return the store's own code, else the HTTP status, else an empty text."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):  # botocore
            return str(response.get("Error", {}).get("Code", ""))
        # azure.core has both, and its codes are enums; gcsfs has the status as `code`.
        for attribute in ("error_code", "status_code", "code"):
            value = getattr(candidate, attribute, None)
            if isinstance(value, str | int):
                return str(getattr(value, "value", value))
    return ""


def _status(error: BaseException) -> int:
    """Return the HTTP status, 0 if the client does not say."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        status = getattr(candidate, "status_code", None)
        if isinstance(status, int):
            return status
    return 0
