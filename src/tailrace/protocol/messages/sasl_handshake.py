"""SaslHandshake (17): chooses the SASL mechanism of a connection.

v1 changes no field: after v0 the tokens are sent without a Kafka header, after v1 in
`SaslAuthenticate` (KIP-152).
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import NO_VERSION, wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeRequest:
    first_version, last_version, flexible_since = 0, 1, NO_VERSION
    mechanism: str = wire("string")  # The mechanism, as IANA names it: SCRAM-SHA-256.


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslHandshakeResponse:
    first_version, last_version, flexible_since = 0, 1, NO_VERSION
    error_code: int = wire("int16")
    mechanisms: tuple[str, ...] = wire_array("string")
