"""SaslHandshake (17): which SASL mechanism follows on this connection.

v1 changes no field: after v0 the tokens travel bare, after v1 in `SaslAuthenticate` (KIP-152).
"""

from dataclasses import dataclass
from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """Let me authenticate with this mechanism."""

    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    mechanism: str = wire("string")
    """The mechanism, as IANA names it: SCRAM-SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """Whether the mechanism is offered."""

    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    error_code: int = wire("int16")
    """0, or why not."""
    mechanisms: tuple[str, ...] = wire_array("string")
    """What the broker offers."""
