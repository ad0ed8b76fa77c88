"""Errors of object stores, converted to this project's errors."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
_REGION = frozenset(
    {
        "301",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
    }
)
_SKEWED = "RequestTimeTooSkewed"
# Codes of answers to a HEAD, which have no body to tell the reason.
_BARE = frozenset({"301", "307", "400", "403"})
# What to do about a refusal; for other codes, see that the credentials may do what was asked.
_REMEDIES = {
    "ExpiredToken": "the credentials have expired; renew them",
    "ExpiredTokenException": "the credentials have expired; renew them",
    "TokenRefreshRequired": "the credentials have expired; renew them",
    "InvalidAccessKeyId": "the store does not know this access key; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; correct"
    " AWS_SECRET_ACCESS_KEY",
    "InvalidToken": "the session token is not of these credentials; correct AWS_SESSION_TOKEN",
}
_FULL = "the store is full, or a quota is used up; make room, or raise the quota"
_DENIED_REMEDY = "check the credentials, and that they may list, read, write and delete there"
# Codes with a misleading status, or with a text that lacks a remedy.
_MEANINGS = {
    "InvalidObjectState": _ARCHIVED,
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    # Nothing was written, and nothing is known of another writer: AWS says to try again.
    "ConditionalRequestConflict": "another request changed the object just then; try again",
    "507": _FULL,
    "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
}
# Exceptions of clients that got no answer, and codes of stores that answer later.
_NO_CONNECTION = frozenset(
    {
        "ClientConnectorError",
        "ConnectTimeoutError",
        "EndpointConnectionError",
        "ReadTimeoutError",
        "SSLError",
        "ServiceRequestError",
        "ServiceResponseError",
    }
)
_UNREACHED = "; see that the endpoint (its scheme, host and port) is right and can be reached"
_BUSY = frozenset({"500", "503", "InternalError", "ServerBusy", "ServiceUnavailable", "SlowDown"})
_OVERLOADED = "; the store is overloaded or has a fault: try again later"
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
    answer = _answered(uri, code, error)
    if answer is not None:
        return answer
    meaning = _meaning(code, error)
    if meaning is not None:
        return Unavailable(f"{uri}: {code}: {meaning}")
    if code.startswith("KMS."):
        return AccessDenied(
            f"{uri}: {code}: the key that it is encrypted with cannot be used; see that the key is"
            " enabled, and that these credentials may use it"
        )
    forbidden = _status(error) in {401, 403} or str(error).startswith("Forbidden")  # gcsfs' 403
    if code in _DENIED or forbidden or isinstance(error, PermissionError):
        return AccessDenied(
            f"{uri}: access denied ({code or _text(error)}); {_REMEDIES.get(code, _DENIED_REMEDY)}"
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
    if isinstance(error, TimeoutError):
        return Unavailable(f"{uri}: timed out{_UNREACHED}")
    remedy = _UNREACHED if name in _NO_CONNECTION else _OVERLOADED if code in _BUSY else ""
    return Unavailable(f"{uri}: {code or name}: {_text(error)}{remedy}")


def _meaning(code: str, error: Exception) -> str | None:
    """Return what a code means and what to do about it; None for one that says it itself."""
    answer = response_of(error) or {}
    if code in _REGION:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = headers.get("x-amz-bucket-region") or answer.get("Error", {}).get("Region")
        if region is None:
            return "the bucket is in another region; set AWS_REGION to that one"
        return f"the bucket is in the region {region}; set AWS_REGION to it"
    if code == _SKEWED:
        return f"the clocks here and at the store differ{_skew(answer)}; set this one right"
    return _MEANINGS.get(code)


def _skew(answer: Mapping[str, Any]) -> str:
    """Return by how much the clocks differ, as the store's answer has it."""
    found = answer.get("Error", {})
    try:
        asked, server = (
            dt.datetime.fromisoformat(found[name]) for name in ("RequestTime", "ServerTime")
        )
        return f" by {abs(server - asked).total_seconds():,.0f} s"
    except (KeyError, TypeError, ValueError):
        return " too much"


def hides_reason(error: BaseException | None) -> bool:
    """Return whether a client's error has a status alone, as the answer to a HEAD has no body."""
    return error is not None and _error_code(error) in _BARE


def response_of(error: BaseException | None) -> Mapping[str, Any] | None:
    """Return the answer of S3 that an error of its client carries."""
    for candidate in (error, getattr(error, "__cause__", None)):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return response
    return None


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


def _answered(uri: str, code: str, error: Exception) -> StorageError | None:
    """Return the error for the store's own code; None if it refused or failed the request."""
    if code in _MISSING_BUCKET:
        return bucket_missing(uri)
    if isinstance(error, FileNotFoundError) or code in _MISSING:
        return NotFound(f"{uri}: not found")
    if code in _LACKING:
        return StorageError(
            f"{uri}: this store does not implement what is asked of it ({code}); use a server, or a"
            " version of it, that has conditional PUT and ListObjectsV2; see"
            " docs/reference/guarantees.md"
        )
    if isinstance(error, FileExistsError) or code in _CONFLICT:  # the first is gcsfs' word for 412
        return Conflict(f"{uri}: changed by another writer")
    return None


def bucket_missing(uri: str) -> BucketMissing:
    """Return the error for a missing bucket of ``uri``."""
    return BucketMissing(f"{uri}: the bucket does not exist; create it, or correct the URI")


def _error_code(error: BaseException) -> str:
    """Return the store's own code, else the HTTP status, else an empty text."""
    answer = response_of(error)
    if answer is not None:
        return str(answer.get("Error", {}).get("Code", ""))
    for candidate in (error, error.__cause__):
        # azure.core has both, and its codes are enums; gcsfs has the status as `code`.
        for attribute in ("error_code", "status_code", "code"):
            value = getattr(candidate, attribute, None)
            if isinstance(value, str | int):
                return str(getattr(value, "value", value))
    return ""


def _status(error: BaseException) -> int:
    """Return the HTTP status, 0 if the client does not say."""
    answer = response_of(error)
    if answer is not None:
        return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    for candidate in (error, error.__cause__):
        status = getattr(candidate, "status_code", None)
        if isinstance(status, int):
            return status
    return 0
