"""CreateAcls (30): adds entries to access control lists.

v1   kinds of patterns (KIP-290)        v2   flexible        v3   users as resources (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreation:
    """A new entry."""

    resource_type: int = wire("int8")
    """Kind of the resource, by Kafka's number."""
    resource_name: str = wire("string")
    """Its name, or a prefix of names."""
    resource_pattern_type: int = wire("int8", since=1, default=3)
    """3: the name itself, 4: a prefix."""
    principal: str = wire("string")
    """The principal, as `User:alice`."""
    host: str = wire("string")
    """The host; `*`: any."""
    operation: int = wire("int8")
    """The operation, by Kafka's number."""
    permission_type: int = wire("int8")
    """2: denied, 3: allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest:
    """Add these entries."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    creations: tuple[AclCreation, ...] = wire_array(AclCreation)
    """The entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclCreationResult:
    """The result for one entry."""

    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsResponse:
    """The results, in the order of the request."""

    first_version: ClassVar[int] = 1
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    results: tuple[AclCreationResult, ...] = wire_array(AclCreationResult)
    """The results."""
