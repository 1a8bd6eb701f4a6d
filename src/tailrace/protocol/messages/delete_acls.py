"""DeleteAcls (31): removes the entries that match filters from access control lists.

v1   kinds of patterns (KIP-290)        v2   flexible        v3   users as resources (KIP-373)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilter:
    resource_type_filter: int = wire("int8")  # Kind of the resource, Kafka's number; 1: any.
    resource_name_filter: str | None = wire("string", nullable_since=0)  # Its name; None: any.
    # Kind of the pattern, Kafka's number; 1: any, 2: all that apply to the name.
    pattern_type_filter: int = wire("int8", since=1, default=3)
    principal_filter: str | None = wire("string", nullable_since=0)  # The principal; None: any.
    host_filter: str | None = wire("string", nullable_since=0)  # The host; None: any.
    operation: int = wire("int8")  # The operation, Kafka's number; 1: any.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed, 1: any.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequest:
    first_version, last_version, flexible_since = 1, 3, 2
    filters: tuple[DeleteAclsFilter, ...] = wire_array(DeleteAclsFilter)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsMatchingAcl:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    resource_type: int = wire("int8")  # Kind of the resource, Kafka's number.
    resource_name: str = wire("string")  # Its name, or a prefix of names.
    pattern_type: int = wire("int8", since=1, default=3)  # 3: the name itself, 4: a prefix.
    principal: str = wire("string")  # The principal, as `User:alice`.
    host: str = wire("string")  # The host; `*`: any.
    operation: int = wire("int8")  # The operation, Kafka's number.
    permission_type: int = wire("int8")  # 2: denied, 3: allowed.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsFilterResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = wire_array(DeleteAclsMatchingAcl)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsResponse:
    """The results, in the order of the request."""

    first_version, last_version, flexible_since = 1, 3, 2
    throttle_time_ms: int = wire("int32")
    filter_results: tuple[DeleteAclsFilterResult, ...] = wire_array(DeleteAclsFilterResult)
