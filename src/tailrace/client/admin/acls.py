"""Access control lists: who may do what with which resource.

    reading = AclBinding(AclResource.TOPIC, "flights", "User:alice", AclOperation.READ)
    admin.create_acls([reading]).results()
    admin.describe_acls(AclFilter(principal="User:alice"))

A resource name is a topic, a group, a transactional id, a user, or `kafka-cluster`; with
`PatternType.PREFIXED` it is the beginning of names.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from tailrace.client.admin.items import ItemRequest, all_of, ask_one, entry_error, for_each
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.routes import ANY
from tailrace.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tailrace.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tailrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.errors import TailraceError

E = TypeVar("E", bound=IntEnum)


class AclResource(IntEnum):
    """Kinds of resources with access control lists, by Kafka's number."""

    UNKNOWN = 0
    """A kind that this version does not know."""
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kinds of names in bindings, by Kafka's number (KIP-290)."""

    UNKNOWN = 0
    ANY = 1
    """In a filter: every kind."""
    # It finds literal names, prefixes of the name, and the literal `*`, which KIP-290 keeps apart.
    MATCH = 2
    """In a filter: every binding that applies to a resource of that name."""
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations on resources, by Kafka's number."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    # KIP-939: a right of its own, since a prepared transaction holds back readers without a time
    # limit.
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a binding allows or denies, by Kafka's number."""

    UNKNOWN = 0
    ANY = 1
    # A denial wins over every permission, as in Kafka's authorizer.
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One entry: a principal may, or may not, do an operation with a resource."""

    resource: AclResource
    name: str
    principal: str
    """`User:alice`, or `User:*` for everybody."""
    operation: AclOperation
    """The operation that is allowed or denied."""
    permission: Permission = Permission.ALLOW
    host: str = "*"
    """The address that the principal connects from; `*`: any."""
    pattern: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Bindings that match in each of these; the defaults match all."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    """`User:alice`."""
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
    """Allowed, denied, or both."""
    host: str | None = None
    pattern: PatternType = PatternType.ANY


def create_acls(call: Call, bindings: Iterable[AclBinding]) -> Steps[Outcomes[AclBinding, None]]:
    """Add bindings; those that exist stay as they are.

    Repeated after a lost connection: a second request changes nothing.

    Raises:
        TypeError: `bindings` is no list of `AclBinding`.
    """
    wanted = all_of(AclBinding, bindings, what="bindings")
    request: ItemRequest[AclBinding, None, CreateAclsResponse] = ItemRequest(
        what="",
        # Any broker forwards it to the controller (KIP-590).
        target=ANY,
        request=lambda batch: CreateAclsRequest(
            creations=tuple(
                AclCreation(
                    resource_type=each.resource,
                    resource_name=each.name,
                    resource_pattern_type=each.pattern,
                    principal=each.principal,
                    host=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in batch
            )
        ),
        response=CreateAclsResponse,
        # The answer has the outcomes in the order of the request, and does not name the bindings.
        entries=lambda answer, batch: zip(batch, answer.results, strict=False),
    )
    return (yield from for_each(call, wanted, request))


def describe_acls(call: Call, matching: AclFilter | None = None) -> Steps[tuple[AclBinding, ...]]:
    """The bindings that match; all of them without a filter.

    Raises:
        RemoteFatalError: the broker refuses: SECURITY_DISABLED if it has no authorizer.
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.0).
        OperationTimeoutError: no answer within the time limit.
    """
    # DescribeAcls takes one filter; DeleteAcls a list.
    [wanted] = all_of(AclFilter, [matching or AclFilter()], what="matching")
    request: ItemRequest[str, tuple[AclBinding, ...], DescribeAclsResponse] = ItemRequest(
        what="the access control lists",
        target=ANY,
        request=lambda _: DescribeAclsRequest(
            resource_type_filter=wanted.resource,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        ),
        response=DescribeAclsResponse,
        value=lambda _, answer: tuple(
            _binding(
                each,
                resource=resource.resource_type,
                name=resource.resource_name,
                pattern=resource.pattern_type,
            )
            for resource in answer.resources
            for each in resource.acls
        ),
    )
    return (yield from ask_one(call, request))


def delete_acls(
    call: Call, filters: Iterable[AclFilter]
) -> Steps[Outcomes[AclFilter, Outcomes[AclBinding, None]]]:
    """Remove the bindings that match; for each filter, the bindings and their own outcomes.

    Repeated after a lost connection. A filter's bindings are then those that the last request has
    removed; an earlier one may have removed others.

    Raises:
        TypeError: `filters` is no list of `AclFilter`.
    """
    wanted = all_of(AclFilter, filters, what="filters")

    def removed(_: AclFilter, found: DeleteAclsFilterResult) -> Outcomes[AclBinding, None]:
        outcomes: dict[AclBinding, TailraceError | None] = {}
        for each in found.matching_acls:
            acl = _binding(
                each,
                resource=each.resource_type,
                name=each.resource_name,
                pattern=each.pattern_type,
            )
            # A filter may match bindings of which some could be deleted and others not, each with a
            # code.
            outcomes[acl] = entry_error(each, about=str(acl))
        return Outcomes(outcomes)

    request = ItemRequest(
        what="",
        target=ANY,
        request=lambda batch: DeleteAclsRequest(
            filters=tuple(
                DeleteAclsFilter(
                    resource_type_filter=each.resource,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in batch
            )
        ),
        response=DeleteAclsResponse,
        entries=lambda answer, batch: zip(batch, answer.filter_results, strict=False),
        value=removed,
    )
    return (yield from for_each(call, wanted, request))


def _binding(
    acl: AclDescription | DeleteAclsMatchingAcl, *, resource: int, name: str, pattern: int
) -> AclBinding:
    return AclBinding(
        resource=_known(AclResource, resource),
        name=name,
        principal=acl.principal,
        operation=_known(AclOperation, acl.operation),
        permission=_known(Permission, acl.permission_type),
        host=acl.host,
        pattern=_known(PatternType, pattern),
    )


def _known(kind: type[E], number: int) -> E:
    """The member with a number; UNKNOWN for one that this version does not know."""
    # A newer broker may have resources or operations that this version has no name for.
    # `set`, because `number in kind` raises TypeError before Python 3.12.
    return kind(number) if number in set(kind) else kind(0)


def operations_in(bits: int) -> frozenset[AclOperation] | None:
    """The operations in the bits of an answer; None if it does not tell."""
    # Kafka's number for: not asked for, or not known.
    if bits == -(1 << 31):
        return None
    return frozenset(each for each in AclOperation if each and bits >> each & 1)
