"""`ConsumerMetadata`: the brokers, topics, leaders and replicas that a consumer needs to know.

A state machine without I/O. It says when a request is due (`due_in`), makes the request
(`next_request`), and takes the answer (`answered`) or the failure (`failed`).

    all wanted topics     every `metadata.max.age.ms`, and after signs of stale metadata
                          (`request_update`); with backoff while answers bring nothing new
    a new topic           at once

Not here: which broker gets the request. The producer has its own, since it never asks for all
topics and forgets those that it does not use.

Invariant: a wanted update is satisfied only by a request that was made after it was asked for. A
partition's leader epoch never decreases while the topic id is the same (KIP-320, KIP-516).
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.client.consumer.subscription import NO_NODE, NOBODY, Leader
from tailrace.client.listings import PartitionInfo, is_address, partitions_of, usable_nodes
from tailrace.client.nodes import Node
from tailrace.client.nodes.backoff import Backoff
from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_EPOCHS_SINCE = 9
"""First version of Metadata whose leader epochs are reliable; in older ones they may be wrong."""

_INSTANT_S = 1e-6
"""Shorter waits count as none: added to a time, they may be lost in rounding."""

_LASTING = {
    int(ErrorCode.INVALID_TOPIC_EXCEPTION): ErrorCode.INVALID_TOPIC_EXCEPTION,
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""Errors of a topic that asking again does not end."""


class TopicMetadata(NamedTuple):
    """A topic in the last answer."""

    topic_id: UUID | None
    leaders: tuple[Leader, ...]
    """By partition."""
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool
    error: int = 0
    """Why the topic cannot be used now; 0 if it can."""


class Token(NamedTuple):
    """The purpose of a request; the caller passes it back with the answer."""

    topics: frozenset[str] | None
    """The topics that were asked for by name; None: all."""
    ids: frozenset[UUID]
    """Topics that were asked for by id."""
    wants: int


class ConsumerMetadata:
    """Brokers and topics for one consumer; `now` is in monotonic seconds."""

    def __init__(
        self,
        bootstrap: Sequence[Node],
        backoff: Backoff,
        *,
        max_age_ms: int,
        may_rebootstrap: bool,
        may_create_topics: bool,
    ) -> None:
        self.version = 0
        """Increased whenever brokers or topics were updated."""
        self.topics: dict[str, TopicMetadata] = {}
        self.racks: dict[int, str | None] = {}
        """The rack of each broker."""
        self._names: dict[UUID, str] = {}
        self._bootstrap = {each.id: each for each in bootstrap}
        self._nodes = self._bootstrap
        self._wanted: frozenset[str] = frozenset()
        self._wanted_ids: frozenset[UUID] = frozenset()
        self._learnt: frozenset[str] = frozenset()
        """Names of topics that were asked for by id."""
        self._guests: dict[str, int] = {}
        """Topics that single calls need, with the number of these calls."""
        self._pattern: re.Pattern[str] | None = None
        self._max_age_s = max_age_ms / 1000
        self._may_rebootstrap = may_rebootstrap
        self._may_create_topics = may_create_topics
        self._backoff = backoff
        self._in_flight: Token | None = None
        self._wants = 0
        self.last_answered = 0
        """The latest request of `request_update` that an answer has come to."""
        self._aged_at = math.inf
        self._allowed_at = -math.inf
        self._fruitless = 0
        self.failure: Exception | None = None
        """Why the last request failed; None if it did not."""

    # -- what is known ------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The brokers that requests can go to: those of the cluster, or the bootstrap list."""
        return tuple(self._nodes.values())

    def node(self, node_id: int) -> Node | None:
        """The node with this id, or None."""
        return self._nodes.get(node_id)

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic; None if it is not known, or the brokers have none."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic with this id, or None."""
        return self._names.get(topic_id)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader of a partition; None if there is none, or its address is not known."""
        known = self.topics.get(partition.topic)
        if known is None or not 0 <= partition.partition < len(known.leaders):
            return None
        leader = known.leaders[partition.partition]
        return leader if leader.node_id in self._nodes and leader.node_id >= 0 else None

    def partition_count(self, topic: str) -> int | None:
        """The number of a topic's partitions; None while it is not known."""
        known = self.topics.get(topic)
        return None if known is None or known.error else len(known.leaders)

    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each usable topic."""
        return {name: len(each.leaders) for name, each in self.topics.items() if not each.error}

    # -- what is wanted -----------------------------------------------------------------------

    def want(
        self,
        topics: Collection[str],
        *,
        ids: frozenset[UUID] = frozenset(),
        pattern: re.Pattern[str] | None = None,
    ) -> None:
        """Keep the metadata of these topics; `ids` are of topics without a name yet.

        With `pattern` it is that of all topics, of which those that match are wanted too.
        """
        wanted = frozenset(topics)
        is_more = bool(wanted - self._wanted - self.topics.keys())
        is_more = is_more or bool(ids - self._wanted_ids)
        is_more = is_more or (pattern is not None and self._pattern is None)
        self._wanted, self._wanted_ids, self._pattern = wanted, ids, pattern
        if is_more:
            self.request_update(is_urgent=True)

    def add_guest(self, topic: str) -> None:
        """Have the metadata of a topic until `remove_guest`."""
        self._guests[topic] = self._guests.get(topic, 0) + 1
        known = self.topics.get(topic)
        if known is None or known.error:
            self.request_update(is_urgent=True)

    def remove_guest(self, topic: str) -> None:
        """Undo an `add_guest`."""
        self._guests[topic] -= 1
        if not self._guests[topic]:
            del self._guests[topic]

    def request_update(self, *, is_urgent: bool = False) -> int:
        """Ask anew, as soon as the backoff allows it, or at once; returns the request's number."""
        if is_urgent:
            self._allowed_at = -math.inf
        self._wants += 1
        return self._wants

    def no_node(self, now: float) -> None:
        """Handle that no broker can be connected to now, since all have failed lately.

        With `metadata.recovery.strategy=rebootstrap` the bootstrap list replaces them.
        """
        if self._may_rebootstrap and self._nodes is not self._bootstrap:
            self._rebootstrap()
        else:
            self._fruitless += 1
            self._pause(now)

    def due_in(self, now: float) -> float:
        """Seconds until a request is due; infinite while one is in flight."""
        if self._in_flight is not None:
            return math.inf
        wanted_at = -math.inf if self._wants > self.last_answered else self._aged_at
        left = max(wanted_at, self._allowed_at) - now
        return left if left > _INSTANT_S else 0.0

    def next_request(self, now: float) -> tuple[MetadataRequest, Token] | None:
        """The request that is due now, or None; `answered` or `failed` must follow."""
        if self.due_in(now) > 0:
            return None
        topics = None
        ids: frozenset[UUID] = frozenset()
        asked = None
        if self._pattern is None:
            topics = self._wanted | self._guests.keys() | self._learnt
            ids = self._wanted_ids - self._names.keys()
            by_name = (MetadataRequestTopic(name=each) for each in sorted(topics))
            by_id = (MetadataRequestTopic(topic_id=each, name=None) for each in sorted(ids))
            asked = (*by_name, *by_id)
        self._in_flight = Token(topics, ids, self._wants)
        may_create = self._may_create_topics and topics is not None
        body = MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)
        return body, self._in_flight

    # -- what came back -----------------------------------------------------------------------

    def answered(
        self, token: Token, response: MetadataResponse, now: float, *, version: int
    ) -> None:
        """Apply an answer to Metadata of that version; a second one for a token is ignored."""
        if token is not self._in_flight:
            return
        nodes = usable_nodes(response)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._rebootstrap()
        if response.error_code or not nodes:
            code = response.error_code
            reason = f"error {code}" if code else "it names no broker"
            self.failed(token, ValueError(f"an answer to Metadata: {reason}"), now)
            return
        self._in_flight = None
        self.failure = None
        self.last_answered = token.wants
        self._aged_at = now + self._max_age_s
        before = self._nodes, self.topics
        self._nodes = nodes
        self.racks = {each.node_id: each.rack for each in response.brokers}
        self._take_topics(token, response.topics, has_epochs=version >= _EPOCHS_SINCE)
        self._fruitless = self._fruitless + 1 if before == (self._nodes, self.topics) else 0
        self.version += 1
        self._pause(now)

    def failed(self, token: Token, error: Exception, now: float) -> None:
        """Note that a request failed; what it was made for stays wanted."""
        if token is self._in_flight:
            self._in_flight = None
            self.failure = error
            self._fruitless += 1
            if self._wants == token.wants:
                self._wants += 1
            self._pause(now)

    def update_leader(
        self, partition: TopicPartition, leader: Leader, endpoint: Node | None
    ) -> bool:
        """Apply a leader from an answer to Fetch (KIP-951); returns whether it was newer.

        `endpoint` is its address, if the answer has it. An answer to ListOffsets has the epoch
        alone; if that is newer, the partition has no leader until Metadata names that of the epoch
        or of a later one.
        """
        known = self.topics.get(partition.topic)
        if known is None or not 0 <= partition.partition < len(known.leaders):
            return False
        if endpoint is not None and (endpoint.id != leader.node_id or not is_address(endpoint)):
            endpoint = None
        before = known.leaders[partition.partition].epoch
        if leader.node_id < 0:
            if before < 0:
                return False  # Epochs are not known, or not reliable.
        elif endpoint is None and leader.node_id not in self._nodes:
            return False
        if leader.epoch <= before:
            return False
        leaders = list(known.leaders)
        leaders[partition.partition] = leader
        self.topics = {**self.topics, partition.topic: known._replace(leaders=tuple(leaders))}
        if endpoint is not None:
            self._nodes = {**self._nodes, endpoint.id: endpoint}
        if leader.node_id < 0:
            self.request_update()
        self.version += 1
        return True

    # -- internal -----------------------------------------------------------------------------

    def _pause(self, now: float) -> None:
        self._allowed_at = now + self._backoff.pause_s(max(self._fruitless - 1, 0))

    def _rebootstrap(self) -> None:
        """Forget the brokers; topics keep their partitions, without leaders.

        The pause after the last answer holds. If it named brokers that are paused themselves, each
        answer would lead back here at once.
        """
        self._nodes = self._bootstrap
        self.topics = {
            name: each._replace(leaders=(NOBODY,) * len(each.leaders))
            for name, each in self.topics.items()
        }
        self._fruitless = 0
        self.version += 1
        self.request_update()

    def _take_topics(
        self, token: Token, answers: Iterable[MetadataResponseTopic], *, has_epochs: bool
    ) -> None:
        by_name = {each.name: each for each in answers if each.name}
        old = self.topics
        topics: dict[str, TopicMetadata] = {}
        if token.topics is not None:
            # What was not asked for may be of a call that ended or began meanwhile.
            kept = self._wanted | self._guests.keys() | self._learnt
            topics = {name: old[name] for name in old.keys() & kept - token.topics}
        learnt = {name for name, each in by_name.items() if each.topic_id in token.ids}
        self._learnt |= learnt
        pattern, asked_for = self._pattern, self._wanted | self._guests.keys() | self._learnt
        # An answer about all topics leaves out those that do not exist.
        asked = by_name.keys() | self._wanted if token.topics is None else token.topics
        for name in asked | learnt:
            answer = by_name.get(name)
            if answer is None or answer.error_code:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if answer is None else answer.error_code
                before = old.get(name, _UNKNOWN)
                is_gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics[name] = (_UNKNOWN if is_gone else before)._replace(error=int(code))
                is_passing = code not in _LASTING
            else:
                topics[name] = _read_topic(name, answer, old.get(name), has_epochs=has_epochs)
                is_passing = any(
                    each.leader_id < 0 or each.leader_id not in self._nodes
                    for each in answer.partitions
                )
            is_wanted = name in asked_for or (pattern is not None and pattern.fullmatch(name))
            if is_passing and is_wanted:
                self.request_update()
        self.topics = topics
        self._names = {
            each.topic_id: name for name, each in topics.items() if each.topic_id is not None
        }


def topics_with(metadata: ConsumerMetadata, code: ErrorCode) -> frozenset[str]:
    """The wanted topics that have this error."""
    return frozenset(name for name, each in metadata.topics.items() if each.error == code)


def replica_racks(metadata: ConsumerMetadata, topic: TopicMetadata) -> tuple[frozenset[str], ...]:
    """The racks of the replicas of each partition."""
    racks = metadata.racks
    return tuple(
        frozenset(filter(None, map(racks.get, each.replicas))) for each in topic.partitions
    )


def is_online(metadata: ConsumerMetadata, partition: TopicPartition, node_id: int) -> bool:
    """Whether a broker that has a replica of the partition can be read from."""
    known = metadata.topics.get(partition.topic)
    if known is None or not 0 <= partition.partition < len(known.partitions):
        return False
    is_offline = node_id in known.partitions[partition.partition].offline_replicas
    return metadata.node(node_id) is not None and not is_offline


_UNKNOWN = TopicMetadata(None, (), (), is_internal=False)


def _read_topic(
    name: str, answer: MetadataResponseTopic, old: TopicMetadata | None, *, has_epochs: bool
) -> TopicMetadata:
    """The topic from an answer; a partition with an older epoch keeps its known leader."""
    topic_id = None if answer.topic_id == NO_UUID else answer.topic_id
    numbers = {each.partition_index for each in answer.partitions}
    if numbers != set(range(len(numbers))) or not numbers:
        # A number of 2^31 must not become a tuple of that length.
        return _UNKNOWN._replace(error=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    is_same = old is not None and (topic_id is None or topic_id == old.topic_id)
    leaders = list(old.leaders[: len(numbers)]) if old is not None and is_same else []
    leaders += [NOBODY] * (len(numbers) - len(leaders))
    for each in answer.partitions:
        epoch = each.leader_epoch if has_epochs else NO_LEADER_EPOCH
        leader = Leader(max(each.leader_id, NO_NODE), max(epoch, NO_LEADER_EPOCH))
        if leader.epoch < 0 or leader.epoch >= leaders[each.partition_index].epoch:
            leaders[each.partition_index] = leader
    return TopicMetadata(
        topic_id,
        tuple(leaders),
        partitions_of(name, answer),
        is_internal=answer.is_internal,
    )
