"""What object stores answer when they refuse, as the errors that our code knows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from blizzard_core.errors import (
    AccessDenied,
    BucketMissing,
    Conflict,
    NotFound,
    StorageError,
    Unavailable,
)
from blizzard_core.redact import redacted

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
        "InvalidToken",
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
        "TokenRetrievalError",
        "CredentialUnavailableError",
        "ClientAuthenticationError",
        "DefaultCredentialsError",
    }
)
_CONFLICT = frozenset(
    {
        "PreconditionFailed",
        "ConditionalRequestConflict",
        "ConditionNotMet",
        "BlobAlreadyExists",
        "412",
    }
)


def wrap_error(uri: str, error: Exception) -> StorageError:
    """The `StorageError` that tells what happened, from what a back end raised.

    s3fs turns S3 codes into `OSError` and keeps the original as ``__cause__``;
    botocore raises its own classes for missing credentials and lost
    connections; gcsfs has a class per status, Azure a code and a status on its
    exceptions. Texts of foreign exceptions are kept out of credential errors.
    """
    code = _error_code(error)
    name = type(error.__cause__ or error).__name__
    answer = _answered(uri, code, absent=isinstance(error, FileNotFoundError))
    if answer is not None:
        return answer
    forbidden = _status(error) in {401, 403} or str(error).startswith("Forbidden")  # gcsfs' 403
    if code in _DENIED or forbidden or isinstance(error, PermissionError):
        return AccessDenied(
            f"{uri}: access denied ({code or redacted(str(error))}); check the credentials, and"
            " that they may list, read and write there"
        )
    if name in _NO_CREDENTIALS:
        return AccessDenied(
            f"{uri}: no credentials found; set them in storage_options or the environment"
        )
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return Unavailable(f"{uri}: timed out")
    return Unavailable(f"{uri}: {code or name}: {redacted(str(error))}")


def _answered(uri: str, code: str, *, absent: bool) -> StorageError | None:
    """What is so by the store's own code; None where it refused or failed the request."""
    if code in _MISSING_BUCKET:
        return bucket_missing(uri)
    if absent or code in _MISSING:
        return NotFound(f"{uri}: not found")
    if code in _CONFLICT:
        return Conflict(f"{uri}: changed by another writer")
    return None


def bucket_missing(uri: str) -> BucketMissing:
    """The bucket that ``uri`` is in does not exist."""
    return BucketMissing(f"{uri}: the bucket does not exist; create it, or correct the URI")


def _error_code(error: BaseException) -> str:
    """The store's own code, or the HTTP status, or nothing."""
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
    """The HTTP status, 0 if the back end does not tell."""
    for candidate in (error, error.__cause__):
        response = getattr(candidate, "response", None)
        if isinstance(response, Mapping):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        status = getattr(candidate, "status_code", None)
        if isinstance(status, int):
            return status
    return 0
