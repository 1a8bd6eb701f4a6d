"""What handlers may use of the broker, and the helpers that most of them need."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from tailrace.cluster.controller import (
    Controller,
    InvalidPartitionsError,
    InvalidReplicationError,
    InvalidTopicError,
    TopicExistsError,
)
from tailrace.cluster.image import Topic
from tailrace.errors import ConfigError, TailraceError
from tailrace.protocol.errors import ErrorCode, code_for
from tailrace.protocol.fields import NO_UUID
from tailrace.replication.partition import FencedLeaderEpochError, UnknownLeaderEpochError
from tailrace.replication.replicas import Replicas
from tailrace.runtime.clock import Clock
from tailrace.runtime.threads import Threads
from tailrace.storage.producers import InvalidProducerEpochError, OutOfOrderSequenceError

_CODES: dict[type[Exception], ErrorCode] = {
    FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    InvalidTopicError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    InvalidReplicationError: ErrorCode.INVALID_REPLICATION_FACTOR,
    ConfigError: ErrorCode.INVALID_CONFIG,
    InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The broker as its handlers see it."""

    node_id: int
    cluster_id: str
    endpoint: Callable[[], tuple[str, int]]
    """Host and port that clients are told to connect to."""
    controller: Controller
    replicas: Replicas
    clock: Clock
    threads: Threads
    auto_create_topics: bool
    fetch_bytes_max: int
    """Most bytes of records in one fetch response."""

    def find_topic(self, name: str, topic_id: UUID) -> Topic | None:
        """A topic by its id where one was sent (not zero), else by its name."""
        image = self.controller.image
        return image.topics.get(name) if topic_id == NO_UUID else image.topic_by_id(topic_id)


def error_code(error: TailraceError | OSError) -> ErrorCode:
    """The wire's number for an error of the rooms below; one of the system is the device's."""
    if not isinstance(error, TailraceError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return _CODES.get(type(error), code_for(error))
