"""Envelope (58): a request of a client forwarded to the active controller (KIP-590)."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeRequest:
    """A client's request, with who has sent it."""

    first_version, last_version, flexible_since = 0, 0, 0
    request_data: bytes = wire("bytes")  # The request with its header, without its size.
    # The user as Kafka's default principals are written; null: not known.
    request_principal: bytes | None = wire("bytes", nullable_since=0)
    client_host_address: bytes = wire("bytes")  # The client's IP address, 4 or 16 bytes.


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeResponse:
    first_version, last_version, flexible_since = 0, 0, 0
    response_data: bytes | None = wire("bytes", nullable_since=0, default=None)
    error_code: int = wire("int16")
