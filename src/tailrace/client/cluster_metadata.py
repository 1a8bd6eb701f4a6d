"""`ClusterMetadata`: the brokers, topics, leaders and replicas that a client needs to know.

A state machine without I/O. It says when a request is due (`due_in`), makes the request
(`next_request`), and takes the answer (`answered`) or the failure (`failed`).

    all topics of interest   every `metadata.max.age.ms`, and after signs of stale metadata
                             (`request_update`); with backoff while answers bring nothing new
    new topics               at once

Subclasses know which topics are of interest: those that a producer sends to, or those that a
consumer has subscribed to. Not here: which broker gets the request (`cluster_requests`).

Invariant: a wanted update is satisfied only by a request that was made after it was asked for. A
partition's leader epoch never decreases while the topic id is the same (KIP-320, KIP-516).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.client.errors import error_words
from tailrace.client.nodes import Node
from tailrace.client.retries import Backoff
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

NO_NODE: Final = -1

_PORTS: Final = range(1, 1 << 16)

LASTING = frozenset(
    (int(ErrorCode.INVALID_TOPIC_EXCEPTION), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
)
"""Errors of a topic that asking again does not end."""


class PartitionInfo(NamedTuple):
    """A partition of a topic, and the brokers that have it."""

    topic: str
    partition: int
    leader: int | None
    """Id of the leading broker; None while there is none."""
    replicas: tuple[int, ...]
    """Ids of the brokers that have it."""
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class Leader(NamedTuple):
    """The leader of a partition."""

    node_id: int
    """Id of the broker; -1 if there is no leader."""
    epoch: int
    """The leader epoch; -1 if it is not known."""


NOBODY = Leader(NO_NODE, NO_LEADER_EPOCH)


class TopicMetadata(NamedTuple):
    """A topic in the last answer."""

    topic_id: UUID | None
    leaders: tuple[Leader, ...]
    """By partition; kept during an error, because of the epochs."""
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool
    error: int = 0
    """Why the topic cannot be used now, as a code; 0 if it can."""
    reason: str = ""
    """The same in words."""


UNKNOWN = TopicMetadata(None, (), (), is_internal=False)


class Token(NamedTuple):
    """The purpose of a request; the caller passes it back with the answer."""

    topics: frozenset[str] | None
    """The topics that were asked for by name; None: all."""
    ids: frozenset[UUID]
    """Topics that were asked for by id."""
    is_full: bool
    """Whether it asks for all topics of interest, or only for new ones."""
    wants: int
    """The number of wanted updates when the request was made."""


class AskedMetadata(NamedTuple):
    """A request to send to any broker."""

    body: MetadataRequest
    token: Token


class ClusterMetadata:
    """Brokers and topics; `now` is in monotonic seconds."""

    def __init__(
        self,
        bootstrap: Sequence[Node],
        backoff: Backoff,
        *,
        max_age_ms: int,
        may_rebootstrap: bool,
    ) -> None:
        self.version = 0
        """Increased whenever brokers or topics were updated."""
        self.topics: Mapping[str, TopicMetadata] = {}
        self.racks: dict[int, str | None] = {}
        """The rack of each broker."""
        self.last_answered = 0
        """The latest request of `request_update` that an answer has come to."""
        self.failure: Exception | None = None
        """Why the last request failed; None if it did not."""
        self._bootstrap = {each.id: each for each in bootstrap}
        self._nodes = self._bootstrap
        self._new: set[str] = set()
        """Topics that are asked for at once, and without the others."""
        self._available: dict[str, tuple[int, ...]] = {}
        self._max_age_s = max_age_ms / 1000
        self._may_rebootstrap = may_rebootstrap
        self._backoff = backoff
        self._in_flight: Token | None = None
        self._wants = 0
        self._aged_at = math.inf
        self._allowed_at = -math.inf
        self._fruitless = 0
        """Consecutive requests that failed or brought nothing new."""

    # -- what is known ------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The brokers that requests can go to: those of the cluster, or the bootstrap list."""
        return tuple(self._nodes.values())

    def node(self, node_id: int) -> Node | None:
        """The node with this id, or None."""
        return self._nodes.get(node_id)

    def partition_count(self, topic: str) -> int | None:
        """The number of a topic's partitions; None while it is not known."""
        known = self.topics.get(topic)
        return None if known is None or known.error else len(known.leaders)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader of a partition; None if there is none, or its address is not known."""
        known = self.topics.get(partition.topic)
        if known is None or known.error or not 0 <= partition.partition < len(known.leaders):
            return None
        leader = known.leaders[partition.partition]
        return leader if self._is_usable(leader) else None

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic that have a leader, in rising order."""
        # Kept until the next change: a producer asks for each record without a key.
        found = self._available.get(topic)
        if found is None:
            known = self.topics.get(topic, UNKNOWN)
            leaders = () if known.error else known.leaders
            found = tuple(n for n, leader in enumerate(leaders) if self._is_usable(leader))
            self._available[topic] = found
        return found

    # -- what is wanted -----------------------------------------------------------------------

    def request_update(self, *, is_urgent: bool = False) -> int:
        """Ask again, as soon as the backoff allows it, or at once; returns the request's number."""
        if is_urgent:
            self._allowed_at = -math.inf
        # A number, not a flag: a request that is under way does not count for what is wanted now.
        self._wants += 1
        return self._wants

    def no_node(self, now: float) -> None:
        """Handle that no broker can be connected to now, since all have failed lately.

        With `metadata.recovery.strategy=rebootstrap` the bootstrap list replaces them.
        """
        # Addresses of all brokers may have changed at once, as in a cluster of pods (KIP-899).
        if self._may_rebootstrap and self._nodes is not self._bootstrap:
            self._rebootstrap()
        else:
            self._fruitless += 1
            self._pause(now)

    def due_in(self, now: float) -> float:
        """Seconds until a request is due; infinite while one is in flight."""
        if self._in_flight is not None:
            return math.inf
        is_wanted = self._new or self._wants > self.last_answered
        wanted_at = -math.inf if is_wanted else self._aged_at
        left = max(wanted_at, self._allowed_at) - now
        return left if left > _INSTANT_S else 0.0

    def next_request(self, now: float, *, may_create: bool = True) -> AskedMetadata | None:
        """The request that is due now, or None; `answered` or `failed` must follow.

        With `may_create`, brokers may create topics that do not exist.
        """
        if self.due_in(now) > 0:
            return None
        is_aged = self._aged_at <= now
        # A refresh by age begins with short pauses.
        if is_aged and self.failure is None:
            self._fruitless = 0
        is_full = is_aged or self._wants > self.last_answered
        topics, ids = self._topics_to_ask(now, is_full=is_full)
        asked = None
        if topics is not None:
            # Sorted, so that the same topics make the same request.
            by_name = (MetadataRequestTopic(name=each) for each in sorted(topics))
            by_id = (MetadataRequestTopic(topic_id=each, name=None) for each in sorted(ids))
            asked = (*by_name, *by_id)
        self._in_flight = Token(topics, ids, is_full, self._wants)
        may_create = may_create and topics is not None
        body = MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)
        return AskedMetadata(body, self._in_flight)

    # -- what came back -----------------------------------------------------------------------

    def answered(
        self, token: Token, response: MetadataResponse, now: float, *, version: int
    ) -> None:
        """Apply an answer to Metadata of that version; a second one for a token is ignored."""
        # Its request timed out here, and another one was sent since.
        if token is not self._in_flight:
            return
        nodes = usable_nodes(response)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._rebootstrap()
        if response.error_code or not nodes:
            reason = (
                error_words(response.error_code) if response.error_code else "it names no broker"
            )
            self.failed(token, ValueError(f"an answer to Metadata: {reason}"), now)
            return
        self._in_flight = None
        self.failure = None
        # Topics that became new while the request was under way stay.
        self._new -= token.topics or set()
        if token.is_full:
            self.last_answered = token.wants
            self._aged_at = now + self._max_age_s
        before = self._nodes, self.topics
        self._nodes = nodes
        self.racks = {each.node_id: each.rack for each in response.brokers}
        self._take_topics(token, response.topics, has_epochs=version >= _EPOCHS_SINCE)
        self._changed()
        # An answer that says the same again is no progress: the pause before the next one doubles
        # (KIP-580).
        self._fruitless = self._fruitless + 1 if before == (self._nodes, self.topics) else 0
        self._pause(now)

    def failed(self, token: Token, error: Exception, now: float) -> None:
        """Note that a request failed; what it was made for stays wanted."""
        if token is self._in_flight:
            self._in_flight = None
            self.failure = error
            self._fruitless += 1
            self._pause(now)

    def update_leader(
        self, partition: TopicPartition, leader: Leader, endpoint: Node | None
    ) -> bool:
        """Apply a leader from an answer to Produce or Fetch (KIP-951); whether it was newer.

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
        # An old leader may not know that there is a newer one.
        if leader.epoch <= before:
            return False
        leaders = list(known.leaders)
        leaders[partition.partition] = leader
        self.topics = {**self.topics, partition.topic: known._replace(leaders=tuple(leaders))}
        if endpoint is not None:
            self._nodes = {**self._nodes, endpoint.id: endpoint}
        if leader.node_id < 0:
            self.request_update()
        self._changed()
        return True

    # -- for subclasses: the topics of interest -----------------------------------------------

    def _topics_to_ask(
        self, now: float, *, is_full: bool
    ) -> tuple[frozenset[str] | None, frozenset[UUID]]:
        """The names to ask for, or None for all topics, and ids of topics without a name yet.

        All topics of interest if `is_full`, else the new ones.
        """
        raise NotImplementedError

    def _kept_topics(self, token: Token) -> dict[str, TopicMetadata]:
        """The known topics that stay as they are, as the answer is not about them."""
        raise NotImplementedError

    def _expected(self, token: Token, answers: Mapping[str, MetadataResponseTopic]) -> set[str]:  # noqa: ARG002
        """The topics that an answer is about."""
        return set(token.topics or ())

    def _is_wanted(self, topic: str) -> bool:  # noqa: ARG002
        """Whether a topic that cannot be used is to be asked for again."""
        return True

    def _took(self, topic: str, before: TopicMetadata, now: TopicMetadata) -> None:
        """Look at a topic in an answer."""

    # -- internal -----------------------------------------------------------------------------

    def _is_usable(self, leader: Leader) -> bool:
        return leader.node_id >= 0 and leader.node_id in self._nodes

    def _changed(self) -> None:
        self.version += 1
        self._available = {}

    def _pause(self, now: float) -> None:
        self._allowed_at = now + self._backoff.pause_s(max(self._fruitless - 1, 0))

    def _rebootstrap(self) -> None:
        """Forget the brokers; topics keep their partitions, without leaders.

        So records can still be put into batches. The pause after the last answer holds: brokers
        that it named may be paused themselves, and each answer would lead back here at once.
        """
        self._nodes = self._bootstrap
        # The epochs stay: a broker of the bootstrap list that is cut off from the controller names
        # itself as a leader, of an earlier epoch. Kafka's client takes any epoch here. Without an
        # id of the topic it may be one of another cluster, which has its own epochs.
        self.topics = {
            name: each._replace(
                leaders=tuple(
                    NOBODY if each.topic_id is None else leader._replace(node_id=NO_NODE)
                    for leader in each.leaders
                )
            )
            for name, each in self.topics.items()
        }
        self._fruitless = 0
        self.request_update()
        self._changed()

    def _take_topics(
        self, token: Token, answers: Iterable[MetadataResponseTopic], *, has_epochs: bool
    ) -> None:
        """Replace the metadata of the topics that were asked for."""
        by_name = {each.name: each for each in answers if each.name}
        topics = self._kept_topics(token)
        for name in self._expected(token, by_name):
            answer = by_name.get(name)
            old = self.topics.get(name, UNKNOWN)
            if answer is None:
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                reason = "the answer of the broker leaves it out"
                found = old._replace(error=code, reason=reason)
            elif answer.error_code:
                found = old._replace(error=answer.error_code, reason=error_words(answer.error_code))
            else:
                found = _read_topic(name, answer, old, has_epochs=has_epochs)
            topics[name] = found
            self._took(name, old, found)
            has_trouble = found.error or any(
                each.error_code and each.leader_id not in self._nodes
                for each in (() if answer is None else answer.partitions)
            )
            if has_trouble and found.error not in LASTING and self._is_wanted(name):
                self.request_update()
        self.topics = topics


def _read_topic(
    name: str, answer: MetadataResponseTopic, old: TopicMetadata, *, has_epochs: bool
) -> TopicMetadata:
    """The topic from an answer; a partition with an older epoch keeps its known leader.

    Partitions must be numbered from 0 without a gap, or keys would go to the wrong ones; and a
    number of 2^31 must not become a tuple of that length.
    """
    topic_id = None if answer.topic_id == NO_UUID else answer.topic_id
    # A topic that was deleted and made again begins with epoch 0.
    is_same = topic_id is None or topic_id == old.topic_id
    numbers = {each.partition_index for each in answer.partitions}
    count = len(numbers)
    if not count or min(numbers) != 0 or max(numbers) != count - 1:
        reason = "the broker numbers its partitions with gaps, or names none"
        return old._replace(error=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), reason=reason)
    leaders = list(old.leaders[:count]) if is_same else []
    leaders += [NOBODY] * (count - len(leaders))
    shared: dict[Leader, Leader] = {}
    for each in answer.partitions:
        epoch = each.leader_epoch if has_epochs else NO_LEADER_EPOCH
        leader = Leader(max(each.leader_id, NO_NODE), max(epoch, NO_LEADER_EPOCH))
        if leader.epoch < 0 or leader.epoch >= leaders[each.partition_index].epoch:
            # One object for all partitions with the same leader and epoch: a topic may have 10,000.
            leaders[each.partition_index] = shared.setdefault(leader, leader)
    return TopicMetadata(
        topic_id, tuple(leaders), partitions_of(name, answer), is_internal=answer.is_internal
    )


def partitions_of(name: str, answer: MetadataResponseTopic) -> tuple[PartitionInfo, ...]:
    """The partitions of one topic of an answer, in order."""
    found = {
        each.partition_index: PartitionInfo(
            name,
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
        )
        for each in answer.partitions
    }
    return tuple(found[number] for number in sorted(found))


def usable_nodes(response: MetadataResponse) -> dict[int, Node]:
    """The brokers by id, without negative ids, which are reserved for the bootstrap list."""
    nodes = (Node(each.node_id, each.host, each.port) for each in response.brokers)
    return {each.id: each for each in nodes if each.id >= 0 and is_address(each)}


def is_address(node: Node) -> bool:
    """Whether a client can connect to the address that a broker gave."""
    return bool(node.host) and node.port in _PORTS
