"""DescribeAcls (29): the access control lists that match a filter.

v1   kinds of patterns (KIP-290)        v2   flexible        v3   users as resources (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsRequest:
    first_version, last_version, flexible_since = 1, 3, 2
    resource_type_filter: int = wire("int8")  # Kind of the resource, Kafka's number; 1: any.
    resource_name_filter: str | None = wire("string", nullable_since=0)  # Its name; None: any.
    # Kind of the pattern, Kafka's number; 1: any, 2: all that apply to the name.
    pattern_type_filter: int = wire("int8", since=1, default=3)
    principal_filter: str | None = wire("string", nullable_since=0)  # The principal; None: any.
    host_filter: str | None = wire("string", nullable_since=0)  # The host; None: any.
    operation: int = wire("int8")  # The operation, Kafka's number; 1: any.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed, 1: any.


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDescription:
    principal: str = wire("string")  # The principal, as `User:alice`.
    host: str = wire("string")  # The host; `*`: any.
    operation: int = wire("int8")  # The operation, Kafka's number.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResource:
    resource_type: int = wire("int8")  # Kind of the resource, Kafka's number.
    resource_name: str = wire("string")  # Its name, or a prefix of names.
    pattern_type: int = wire("int8", since=1, default=3)  # 3: the name itself, 4: a prefix.
    acls: tuple[AclDescription, ...] = wire_array(AclDescription)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAclsResponse:
    first_version, last_version, flexible_since = 1, 3, 2
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    resources: tuple[DescribeAclsResource, ...] = wire_array(DescribeAclsResource)
