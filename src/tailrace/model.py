"""The words that every room shares: a topic-partition, a codec, a level of isolation.

Values only: no behaviour beyond naming, no I/O, nothing that knows a file or a socket.
"""

from enum import Enum, IntEnum
from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""Place of a record in its partition; the first record has 0."""

OFFSET_MAX: Final = Offset(2**63 - 1)
"""The largest offset; as a limit, everything up to the end of a log."""

Position = NewType("Position", int)
"""Bytes from the start of a file."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Number of a partition's leadership; each new leader has a larger one."""

ProducerId = NewType("ProducerId", int)
"""Number of an idempotent producer."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Epoch of a producer id; a producer with an older one is fenced."""

PRODUCER_EPOCH_MAX = ProducerEpoch(32_767)
"""The last epoch of a producer id."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name and its number, as Kafka writes it: `flights-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Principal(NamedTuple):
    """A user or another name that rules of access give rights to: in Kafka's text, `User:alice`."""

    type: str
    name: str
    is_by_token: bool = False
    """Whether it has logged in with a delegation token."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client that has not logged in, by Kafka's name."""


class Codec(IntEnum):
    """Compression of the records of one batch; the number is bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of it, as in settings."""
        return self.name.lower()


class TimestampType(IntEnum):
    """Origin of record timestamps: client or broker; the value is bit 3 of a batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Acks(IntEnum):
    """Replicas that must have a produced batch before it is acknowledged."""

    NONE = 0
    LEADER = 1
    ALL = -1


class AppendOrigin(Enum):
    """Origin of appended batches, which decides which checks for clients apply."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """The broker itself, in the name of a group or of a transaction."""
    REPLICATION = "replication"
    """The leader, whose batches are taken as they are."""


class IsolationLevel(IntEnum):
    """Limit of a consumer's reads: the high watermark or the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class SpecialTimestamp(IntEnum):
    """Timestamps that ListOffsets reads as a question (KIP-734, KIP-405, KIP-1023)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


OFFSETS_TOPIC = "__consumer_offsets"
"""Topic in which brokers keep the committed offsets of groups."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""Topic in which brokers keep the transactions of producers."""

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""Topics in which Kafka keeps its own state: clients may read them by name and not write them."""

METADATA_TOPIC = "__cluster_metadata"
"""Kafka's log of its own cluster (KRaft), which lies in `log.dirs` by default. It is no topic: no
client sees it and only Kafka may write it, for a Kafka that finds one byte too many never starts
again."""

NO_TIMESTAMP = -1
"""Timestamp of a record that has none."""

NO_PRODUCER_ID: Final = ProducerId(-1)
"""Producer id of a batch that was produced without idempotence."""

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
"""Leader epoch of a batch that no leader has stamped yet."""
