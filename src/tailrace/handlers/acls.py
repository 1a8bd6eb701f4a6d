"""Access control lists: which entries there are, and changes of them.

    DescribeAcls (29), 1 to 3
    CreateAcls (30), 1 to 3
    DeleteAcls (31), 1 to 3

Without an authorizer each is SECURITY_DISABLED, with Kafka's messages: an entry would protect
nothing. Entries that the metadata log has stay there. With one the entries are records of the
metadata log, as Kafka writes them, and count for the next request that begins after the answer.

After a crash: all changes of a request are there if it was answered; else all or none.
"""

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tailrace.cluster.control.acls import create_acls, delete_acls, filter_of
from tailrace.handlers.decided import decide_here
from tailrace.handlers.services import Services
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tailrace.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tailrace.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tailrace.runtime.threads import Threads
from tailrace.security.acls import AclFilter
from tailrace.security.authorizer import Authorizer

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

# Programs take this code for "everybody may do everything". MirrorMaker, which copies ACLs by
# default, then says so once and copies none. The words of the two differ, in Kafka too.
_NO_DESCRIPTION: Final = DescribeAclsResponse(
    error_code=ErrorCode.SECURITY_DISABLED,
    error_message="No Authorizer is configured on the broker",
)
_NO_CHANGE: Final = "No Authorizer is configured."


def handle_describe_acls(
    services: Services, _: RequestHeader, request: DescribeAclsRequest
) -> DescribeAclsResponse | LongAnswer:
    """The entries that match a filter; one with an unknown kind is INVALID_REQUEST."""
    return described_acls(services.authorizer, request, services.threads)


def described_acls(
    authorizer: Authorizer | None, request: DescribeAclsRequest, threads: Threads
) -> DescribeAclsResponse | LongAnswer:
    """The answer of a node with an authorizer, or without."""
    if authorizer is None:
        return _NO_DESCRIPTION
    matching = filter_of(request)
    if matching is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="Unknown elements."
        )
    make = partial(_described, authorizer, matching)
    if len(authorizer.entries) > PARTS_INLINE_MAX:
        return LongAnswer(lambda: threads.run(make))
    return make()


def _described(authorizer: Authorizer, matching: AclFilter) -> DescribeAclsResponse:
    # Entries of one resource together, whenever they were made.
    found = sorted(filter(matching.matches, authorizer.entries.values()), key=_pattern)
    return DescribeAclsResponse(
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                acls=tuple(
                    AclDescription(
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission_type,
                    )
                    for each in entries
                ),
            )
            for (resource, name, pattern), entries in groupby(found, _pattern)
        )
    )


def _pattern(entry: "AccessControlEntryRecord") -> tuple[int, str, int]:
    return entry.resource_type, entry.resource_name, entry.pattern_type


async def handle_create_acls(
    services: Services, header: RequestHeader, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Add entries; `cluster.control.acls` has the rules."""
    if services.authorizer is None:
        return no_creation(request)
    answer: CreateAclsResponse = await decide_here(
        services, header, request, rule=partial(create_acls, new_id=services.own_controller.new_id)
    )
    return answer


async def handle_delete_acls(
    services: Services, header: RequestHeader, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Remove the entries that match; `cluster.control.acls` has the rules."""
    if services.authorizer is None:
        return no_deletion(request)
    answer: DeleteAclsResponse = await decide_here(services, header, request, rule=delete_acls)
    return answer


def no_creation(request: CreateAclsRequest) -> CreateAclsResponse:
    """SECURITY_DISABLED for each entry."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_CHANGE)
    return CreateAclsResponse(results=(refused,) * len(request.creations))


def no_deletion(request: DeleteAclsRequest) -> DeleteAclsResponse:
    """SECURITY_DISABLED for each filter."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_CHANGE
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
