"""Records of type 18 of `__cluster_metadata`: an entry of the access control lists."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord:
    """An entry."""

    record_type: ClassVar[int] = 18
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    id: UUID = wire("uuid")
    """The entry."""
    resource_type: int = wire("int8")
    """2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user."""
    resource_name: str = wire("string")
    """The resource, or the prefix of its name."""
    pattern_type: int = wire("int8")
    """3: the name itself, 4: a prefix."""
    principal: str = wire("string")
    """The principal, such as `User:ann`."""
    host: str = wire("string")
    """The host; `*`: any."""
    operation: int = wire("int8")
    """The operation, by Kafka's number."""
    permission_type: int = wire("int8")
    """2: denied, 3: allowed."""
