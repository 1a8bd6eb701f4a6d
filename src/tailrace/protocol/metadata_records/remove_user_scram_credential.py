"""Records of type 22 of `__cluster_metadata`: a SCRAM credential is removed."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord:
    """The end of a credential."""

    record_type: ClassVar[int] = 22
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    name: str = wire("string")
    """The user."""
    mechanism: int = wire("int8")
    """1: SCRAM-SHA-256, 2: SCRAM-SHA-512."""
