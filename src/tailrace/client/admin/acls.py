"""Access control lists: who may do what with which resource.

    reading = AclBinding(AclResource.TOPIC, "flights", "User:alice", AclOperation.READ)
    admin.create_acls([reading]).results()
    admin.describe_acls(AclFilter(principal="User:alice"))

A resource name is a topic, a group, a transactional id, a user, or `kafka-cluster`; with
`PatternType.PREFIXED` it is the beginning of names.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
from tailrace.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    known,
)

if TYPE_CHECKING:
    from tailrace.errors import TailraceError


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
        resource=known(AclResource, resource),
        name=name,
        principal=acl.principal,
        operation=known(AclOperation, acl.operation),
        permission=known(Permission, acl.permission_type),
        host=acl.host,
        pattern=known(PatternType, pattern),
    )


def operations_in(bits: int) -> frozenset[AclOperation] | None:
    """The operations in the bits of an answer; None if it does not tell."""
    # Kafka's number for: not asked for, or not known.
    if bits == -(1 << 31):
        return None
    return frozenset(each for each in AclOperation if each and bits >> each & 1)
