"""CreateAcls (30): adds entries to access control lists.

v1   kinds of patterns (KIP-290)        v2   flexible        v3   users as resources (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreation:
    resource_type: int = wire("int8")  # Kind of the resource, Kafka's number.
    resource_name: str = wire("string")  # Its name, or a prefix of names.
    # 3: the name itself, 4: a prefix.
    resource_pattern_type: int = wire("int8", since=1, default=3)
    principal: str = wire("string")  # The principal, as `User:alice`.
    host: str = wire("string")  # The host; `*`: any.
    operation: int = wire("int8")  # The operation, Kafka's number.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest:
    first_version, last_version, flexible_since = 1, 3, 2
    creations: tuple[AclCreation, ...] = wire_array(AclCreation)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreationResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponse:
    """The results, in the order of the request."""

    first_version, last_version, flexible_since = 1, 3, 2
    throttle_time_ms: int = wire("int32")
    results: tuple[AclCreationResult, ...] = wire_array(AclCreationResult)
