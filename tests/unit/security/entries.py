"""Entries of access control lists, and an authorizer for them."""

from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

from tailrace.model import Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import Caller, RequestHeader
from tailrace.protocol.metadata_records import AccessControlEntryRecord
from tailrace.security.acls import AclOperation, AclResource, PatternType, Permission
from tailrace.security.audit import Audit
from tailrace.security.authorizer import Authorizer

if TYPE_CHECKING:
    from collections.abc import Mapping

_numbers = count(1)


def entry(
    operation: AclOperation,
    name: str = "flights",
    *,
    principal: str = "User:alice",
    resource: AclResource = AclResource.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> AccessControlEntryRecord:
    """An entry with an id of its own."""
    return AccessControlEntryRecord(
        id=UUID(int=next(_numbers)),
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def request_of(
    principal: str = "User:alice", *, host: str = "10.0.0.1", api: ApiKey = ApiKey.FETCH
) -> RequestHeader:
    """The header of a request of a client."""
    kind, _, name = principal.partition(":")
    return RequestHeader(api, 1, 1, "c", Caller(f"{host}:5000", Principal(kind, name), "L"))


class Lists:
    """The entries of an image, which tests change, and their authorizer."""

    def __init__(
        self,
        *entries: AccessControlEntryRecord,
        super_users: tuple[str, ...] = (),
        allows_without_entries: bool = False,
    ) -> None:
        self.entries: Mapping[UUID, AccessControlEntryRecord] = {}
        self.authorizer = Authorizer(
            lambda: self.entries,
            Audit(),
            super_users=super_users,
            allows_without_entries=allows_without_entries,
        )
        self.add(*entries)

    def add(self, *entries: AccessControlEntryRecord) -> None:
        """A next image with these entries too."""
        self.entries = {**self.entries, **{each.id: each for each in entries}}

    def remove(self, *entries: AccessControlEntryRecord) -> None:
        """A next image without these entries."""
        gone = {each.id for each in entries}
        self.entries = {key: each for key, each in self.entries.items() if key not in gone}

    def allows(
        self,
        operation: AclOperation,
        name: str = "flights",
        *,
        principal: str = "User:alice",
        host: str = "10.0.0.1",
        resource: AclResource = AclResource.TOPIC,
    ) -> bool:
        """The answer of the authorizer."""
        return self.authorizer.allows(
            request_of(principal, host=host), operation, resource, name=name
        )
