"""A producer's metadata with its own time, and answers to give it."""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.client.cluster_metadata import Leader, Token
from tailrace.client.nodes import Node
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.retries import Backoff
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BOOTSTRAP = (Node(-1, "boot-1", 9092), Node(-2, "boot-2", 9092))
NO_ID = UUID(int=0)
FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)
PAUSE_S = 0.125
"""The first pause of the backoff, without chance."""
AGE_S = 300.0
IDLE_S = 60.0
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def part(
    index: int, leader: int = 1, *, epoch: int = 0, error: int = ErrorCode.NONE
) -> MetadataResponsePartition:
    """A partition of an answer."""
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=(1, 2),
        isr_nodes=(1, 2),
        offline_replicas=(),
    )


def topic(
    name: str | None,
    *partitions: MetadataResponsePartition,
    topic_id: UUID = NO_ID,
    error: int = ErrorCode.NONE,
) -> MetadataResponseTopic:
    """A topic of an answer."""
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=False,
        partitions=partitions,
    )


def answer(
    *topics: MetadataResponseTopic, brokers: Collection[int] = (1, 2), error: int = ErrorCode.NONE
) -> MetadataResponse:
    """An answer of a cluster with these brokers."""
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=tuple(
            MetadataResponseBroker(node_id=each, host=f"host-{each}", port=9092) for each in brokers
        ),
        topics=topics,
        error_code=error,
    )


class Even(random.Random):
    """Chance that always falls in the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@dataclass
class Life:
    """A producer's metadata and the time."""

    now: float = 1000.0
    may_rebootstrap: bool = True
    jitter: bool = False
    metadata: ProducerMetadata = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(5) if self.jitter else Even()
        self.metadata = ProducerMetadata(
            BOOTSTRAP,
            Backoff(PAUSE_S * 1000, 1000, chance),
            max_age_ms=int(AGE_S * 1000),
            max_idle_ms=int(IDLE_S * 1000),
            may_rebootstrap=self.may_rebootstrap,
        )

    @property
    def due_in(self) -> float:
        """Seconds until the next request."""
        return self.metadata.due_in(self.now)

    def ask(self) -> tuple[list[str], Token]:
        """The topics of the request that is due now, and its token."""
        asked = self.metadata.next_request(self.now)
        assert asked is not None, f"due in {self.due_in} s"
        assert asked.body.topics is not None
        assert asked.body.allow_auto_topic_creation
        return [str(each.name) for each in asked.body.topics], asked.token

    def take(self, token: Token, response: MetadataResponse, *, version: int = 12) -> None:
        """Have a request answered."""
        self.metadata.answered(token, response, self.now, version=version)

    def round(self, response: MetadataResponse, *, version: int = 12) -> list[str]:
        """Wait for the next request and have it answered; the topics it asked about."""
        self.now += self.due_in
        names, token = self.ask()
        self.take(token, response, version=version)
        return names

    def settle(self, response: MetadataResponse) -> None:
        """Ask about `t` from scratch, and wait until the backoff is over."""
        self.metadata.add_topic("t", self.now)
        self.round(response)
        self.now += 1.0

    def renew(self, response: MetadataResponse, *, version: int = 12) -> None:
        """Have all topics asked about anew and answered."""
        self.metadata.add_topic("t", self.now)
        self.metadata.request_update()
        self.round(response, version=version)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition."""
        return self.metadata.leader(partition)


def settled(*partitions: MetadataResponsePartition, topic_id: UUID = NO_ID) -> Life:
    """A life in which topic `t` is known."""
    life = Life()
    life.settle(answer(topic("t", *partitions, topic_id=topic_id)))
    return life
