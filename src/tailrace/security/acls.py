"""Access control lists as values: entries, filters, and the words of Kafka for both.

    binding   User:alice may READ the TOPIC "flights" from any host
    pattern   LITERAL: the name itself, and `*` every name; PREFIXED: names that begin so (KIP-290)

The numbers are those of the protocol and of the records in the metadata log. Here is nothing that
decides; `authorizer` does.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import AccessControlEntryRecord

E = TypeVar("E", bound=IntEnum)

CLUSTER_NAME: Final = "kafka-cluster"
"""The one name of the resource CLUSTER."""
ANY_NAME: Final = "*"
"""Every name, as the name of a literal pattern; every host, as the host."""
ANY_PRINCIPAL: Final = "User:*"
"""Every principal, also one whose type is another."""


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


_Op = AclOperation

OPERATIONS: Final = {
    AclResource.TOPIC: (
        _Op.READ, _Op.WRITE, _Op.CREATE, _Op.DELETE, _Op.ALTER, _Op.DESCRIBE,
        _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS,
    ),
    AclResource.GROUP: (
        _Op.READ, _Op.DELETE, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS,
    ),
    AclResource.CLUSTER: (
        _Op.CREATE, _Op.ALTER, _Op.DESCRIBE, _Op.CLUSTER_ACTION, _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS, _Op.IDEMPOTENT_WRITE,
    ),
    AclResource.TRANSACTIONAL_ID: (_Op.WRITE, _Op.DESCRIBE, _Op.TWO_PHASE_COMMIT),
    AclResource.DELEGATION_TOKEN: (_Op.DESCRIBE,),
    AclResource.USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that each kind of resource has (AclEntry.supportedOperations)."""


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
    host: str = ANY_NAME
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

    def matches(self, entry: "AccessControlEntryRecord") -> bool:
        """Whether an entry of the metadata log is one of those (Kafka's AclBindingFilter)."""
        return (
            self.resource in (AclResource.ANY, entry.resource_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission_type)
            and self._has_pattern(entry)
        )

    def _has_pattern(self, entry: "AccessControlEntryRecord") -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, entry.pattern_type):
            return False
        if self.name is None or self.name == entry.resource_name:
            # Also in a MATCH: a prefix of exactly this name covers the name.
            return True
        if self.pattern is not PatternType.MATCH:
            return False
        if entry.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(entry.resource_name)
        return entry.resource_name == ANY_NAME


def known(kind: type[E], number: int) -> E:
    """The member with a number; UNKNOWN for one that this version does not know."""
    # A newer broker may have resources or operations that this version has no name for.
    # `set`, because `number in kind` raises TypeError before Python 3.12.
    return kind(number) if number in set(kind) else kind(0)


def title(word: IntEnum) -> str:
    """A word as Kafka's tools and logs write it: `TransactionalId`, `DescribeConfigs`."""
    return word.name.replace("_", " ").title().replace(" ", "")
