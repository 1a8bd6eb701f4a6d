"""SaslAuthenticate (36): one token of a SASL mechanism in each direction.

v1   lifetime of the session (KIP-368)  v2   flexible
"""

# ruff: noqa: RUF009 - `wire` makes a dataclass field, as dataclasses.field does.

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import Buffer, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateRequest:
    """The client's token."""

    flexible_since: ClassVar[int] = 2

    auth_bytes: Buffer = wire("records", default=b"")
    """The token, in the mechanism's own format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslAuthenticateResponse:
    """The broker's token."""

    flexible_since: ClassVar[int] = 2

    error_code: int = wire("int16")
    """0, or why the authentication failed."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    auth_bytes: Buffer = wire("records", default=b"")
    """The token, in the mechanism's own format."""
    session_lifetime_ms: int = wire("int64", since=1)
    """Time until the client has to authenticate again; 0: never."""
