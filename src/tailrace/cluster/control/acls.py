"""CreateAcls and DeleteAcls: the entries of access control lists, as records.

Each entry is made or refused by itself, by the rules of Kafka's `AclApis` and `AclControlManager`;
all that are made are one batch. An entry that is there already stays, with its id.

Not here: what entries mean (`tailrace.security`).
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tailrace.cluster.control.state import RECORDS_MAX, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
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
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.security.acls import (
    CLUSTER_NAME,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    known,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

LOOKED_AT_MAX: Final = 500_000
"""Most entries at which all filters of a request look, together: each takes 0.4 us of the loop of
the controller, and some 250 bytes of the answer if it matches."""

_OF_FILTERS: Final = frozenset({AclResource.UNKNOWN, AclResource.ANY})
"""Numbers that stand for no one thing; the same for operations and permissions."""
_PATTERNS_OF_FILTERS: Final = frozenset(PatternType) - {PatternType.LITERAL, PatternType.PREFIXED}

_Entry = tuple[int, str, int, str, str, int, int]


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, *, new_id: Callable[[], UUID]
) -> Decision:
    """Add entries; those that there are, or that the request has twice, are no error.

    A name that no cluster has, an empty one, a principal without a type, and a kind that this
    version does not know are INVALID_REQUEST.

    Raises:
        RefusedError: as in Kafka all of the request, where an entry has a word that only filters
            may have.
    """
    # Imported with the first of them, as all records are (decision 24).
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

    if any(map(_is_for_filters, request.creations)):
        raise RefusedError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "an entry of access control lists cannot be for ANY"
        )
    names = {each.resource_name for each in request.creations}
    found = (each for each in image.acls.values() if each.resource_name in names)
    there = {_of_record(each) for each in found}
    ids: set[UUID] = set()
    records, results = [], []
    for each in request.creations:
        fault = _fault(each)
        code = ErrorCode.NONE if fault is None else ErrorCode.INVALID_REQUEST
        results.append(AclCreationResult(error_code=code, error_message=fault))
        entry = _of_creation(each)
        if fault is None and entry not in there:
            there.add(entry)
            entry_id = new_id()
            while entry_id in image.acls or entry_id in ids:
                entry_id = new_id()
            ids.add(entry_id)
            kept = AccessControlEntryRecord(
                id=entry_id,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                pattern_type=each.resource_pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission_type,
            )
            records.append(RecordToWrite(kept, 0))
    return Decision(records, CreateAclsResponse(results=tuple(results)))


def _is_for_filters(entry: AclCreation) -> bool:
    return (
        entry.resource_type in _OF_FILTERS
        or entry.operation in _OF_FILTERS
        or entry.permission_type in _OF_FILTERS
        or entry.resource_pattern_type in _PATTERNS_OF_FILTERS
    )


def _fault(entry: AclCreation) -> str | None:
    """Why an entry is refused."""
    if entry.resource_type == AclResource.CLUSTER and entry.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not entry.resource_name:
        return "Invalid empty resource name"
    for kind, number, word in (
        (AclResource, entry.resource_type, "resourceType"),
        (PatternType, entry.resource_pattern_type, "patternType"),
        (AclOperation, entry.operation, "operation"),
        (Permission, entry.permission_type, "permissionType"),
    ):
        if number not in set(kind):
            return f"Invalid {word} UNKNOWN"
    if ":" not in entry.principal:
        return (
            f"Could not parse principal from `{entry.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    return None


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Decision:
    """Remove the entries that match one of the filters; each filter is answered with its own.

    A kind that this version does not know is INVALID_REQUEST for its filter.

    Raises:
        RefusedError: more entries match than one batch may have; POLICY_VIOLATION: the filters look
            at more than `LOOKED_AT_MAX`, as fifty for any name do beside 10,000 entries.
    """
    from tailrace.protocol.metadata_records import RemoveAccessControlEntryRecord

    by_name: dict[str, list[AccessControlEntryRecord]] = {}
    for each in image.acls.values():
        by_name.setdefault(each.resource_name, []).append(each)
    gone: dict[UUID, None] = {}
    results, looked_at = [], 0
    for asked in request.filters:
        matching = filter_of(asked)
        if matching is None:
            results.append(
                DeleteAclsFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message="Unknown elements."
                )
            )
            continue
        candidates = _candidates(image, by_name, matching)
        looked_at += len(candidates)
        if looked_at > LOOKED_AT_MAX:
            raise RefusedError(
                ErrorCode.POLICY_VIOLATION,
                f"The filters look at {looked_at} entries, and {LOOKED_AT_MAX} are allowed in a "
                "request: name resources, or send several requests.",
            )
        found = [each for each in candidates if matching.matches(each)]
        gone |= dict.fromkeys(each.id for each in found)
        if len(gone) > RECORDS_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation.",
            )
        results.append(DeleteAclsFilterResult(matching_acls=tuple(map(_removed, found))))
    records = [RecordToWrite(RemoveAccessControlEntryRecord(id=each), 0) for each in gone]
    return Decision(records, DeleteAclsResponse(filter_results=tuple(results)))


def _candidates(
    image: MetadataImage,
    by_name: "dict[str, list[AccessControlEntryRecord]]",
    matching: AclFilter,
) -> "Collection[AccessControlEntryRecord]":
    """Entries among which all are that match: a request may have one filter for each entry."""
    name = matching.name
    if name is not None and matching.pattern is not PatternType.MATCH:
        return by_name.get(name, ())
    return image.acls.values()


def _removed(entry: "AccessControlEntryRecord") -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )


def filter_of(asked: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter | None:
    """The filter of a request; None: it has a kind that this version does not know."""
    found = AclFilter(
        resource=known(AclResource, asked.resource_type_filter),
        name=asked.resource_name_filter,
        principal=asked.principal_filter,
        operation=known(AclOperation, asked.operation),
        permission=known(Permission, asked.permission_type),
        host=asked.host_filter,
        pattern=known(PatternType, asked.pattern_type_filter),
    )
    is_known = all((found.resource, found.operation, found.permission, found.pattern))
    return found if is_known else None


def _of_creation(entry: AclCreation) -> _Entry:
    return (
        entry.resource_type, entry.resource_name, entry.resource_pattern_type, entry.principal,
        entry.host, entry.operation, entry.permission_type,
    )  # fmt: skip


def _of_record(entry: "AccessControlEntryRecord") -> _Entry:
    return (
        entry.resource_type, entry.resource_name, entry.pattern_type, entry.principal, entry.host,
        entry.operation, entry.permission_type,
    )  # fmt: skip
