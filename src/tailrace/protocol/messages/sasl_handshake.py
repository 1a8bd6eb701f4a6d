"""SaslHandshake (17): chooses the SASL mechanism of a connection.

v1 changes no field: after v0 the tokens are sent without a Kafka header, after v1 in
`SaslAuthenticate` (KIP-152).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    """Ask to authenticate with this mechanism."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    mechanism: str = wire("string")
    """The mechanism, as IANA names it: SCRAM-SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    """Whether the mechanism is offered."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 32_767
    """In no version."""

    error_code: int = wire("int16")
    """0, or the code of the error."""
    mechanisms: tuple[str, ...] = wire_array("string")
    """Names of the mechanisms that the broker offers."""
