"""`ProducerMetadata`: the brokers, and the leaders of the partitions that are written to.

A state machine without I/O. It says when a request is due (`due_in`), makes the request
(`next_request`), and takes the answer (`answered`) or the failure (`failed`).

    all topics     every `metadata.max.age.ms`, and after signs of stale metadata
                   (`request_update`); with backoff while answers bring nothing new
    new topics     at once, and only these (`add_topic`)

Not here: which broker gets the request, and how long `send` waits.

Invariant: a wanted update is satisfied only by a request that was made after it was asked for. A
partition's leader epoch never decreases while the topic id is the same (KIP-320, KIP-516).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.client.listings import is_address, usable_nodes
from tailrace.client.nodes import Node
from tailrace.client.nodes.backoff import Backoff
from tailrace.client.producer.errors import AuthorizationError, InvalidTopicError
from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_EPOCHS_SINCE = 9
"""First version of Metadata whose leader epochs are reliable; in older ones they may be wrong."""

_NO_ID = UUID(int=0)


_INSTANT_S = 1e-6
"""Shorter waits count as none: added to a time, they may be lost in rounding."""


class Leader(NamedTuple):
    """The leader of a partition."""

    node_id: int
    """Id of the broker; -1 if there is no leader."""
    epoch: int
    """The leader epoch; -1 if it is not known."""


_NOBODY = Leader(-1, NO_LEADER_EPOCH)


class Token(NamedTuple):
    """The purpose of a request; the caller passes it back with the answer."""

    topics: frozenset[str]
    is_full: bool
    """Whether it asks for all topics, or only for new ones."""
    wants: int
    """The number of wanted updates when the request was made."""


class AskedMetadata(NamedTuple):
    """A request to send to any broker."""

    body: MetadataRequest
    token: Token


class _Topic(NamedTuple):
    """The metadata of a topic in the last answer."""

    topic_id: UUID | None
    leaders: tuple[Leader, ...]
    """By partition; kept during an error, because of the epochs."""
    error: str = ""
    """Why the topic cannot be used now; empty if it can."""


_UNKNOWN = _Topic(None, ())


class ProducerMetadata:
    """Brokers, topics and leaders for one producer; `now` is in monotonic seconds."""

    def __init__(
        self,
        bootstrap: Sequence[Node],
        backoff: Backoff,
        *,
        max_age_ms: int,
        max_idle_ms: int,
        may_rebootstrap: bool,
        resized: Callable[[str], None] | None = None,
    ) -> None:
        """`resized` is called with each topic that an answer gives another number of partitions."""
        self.version = 0
        """Increased whenever brokers or topics were updated."""
        self._bootstrap = {each.id: each for each in bootstrap}
        self._nodes = self._bootstrap
        self._topics: dict[str, _Topic] = {}
        self._available: dict[str, tuple[int, ...]] = {}
        self.errors: dict[str, Exception] = {}
        """By topic: the error that makes waiting for it pointless, an invalid name or missing
        rights. It stays for all waiting callers until `add_topic` is called for the topic again."""
        self.used_at: dict[str, float] = {}
        """When each topic in use was last sent to; the topics need not be known."""
        self._new: set[str] = set()
        self._resized = resized
        self._max_age_s = max_age_ms / 1000
        self._max_idle_s = max_idle_ms / 1000
        self._may_rebootstrap = may_rebootstrap
        self._backoff = backoff
        self._in_flight: Token | None = None
        self._wants = 1
        self.last_answered = 0
        """The latest request of `request_update` that an answer has come to."""
        self._aged_at = -math.inf
        self._allowed_at = -math.inf
        self._fruitless = 0
        """Consecutive requests that failed or brought nothing new."""
        self._failure: Exception | None = None

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
        known = self._topics.get(topic)
        return None if known is None or known.error else len(known.leaders)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The leader of a partition; None if there is none, or its address is not known."""
        known = self._topics.get(partition.topic)
        if known is None or known.error or not 0 <= partition.partition < len(known.leaders):
            return None
        leader = known.leaders[partition.partition]
        return leader if self._is_usable(leader) else None

    def available_partitions(self, topic: str) -> tuple[int, ...]:
        """The partitions of a topic that have a leader, in rising order."""
        found = self._available.get(topic)
        if found is None:
            known = self._topics.get(topic, _UNKNOWN)
            leaders = () if known.error else known.leaders
            found = tuple(n for n, leader in enumerate(leaders) if self._is_usable(leader))
            self._available[topic] = found
        return found

    def describe_wait(
        self,
        topic: str,
        waited_s: float,
        *,
        partition: int | None = None,
        failure: Exception | None = None,
    ) -> str:
        """The text of a timeout error, with the known reason.

        `failure` is the error of the last connection to a broker.
        """
        known = self._topics.get(topic)
        if known is None:
            brokers = ", ".join(f"{each.host}:{each.port}" for each in self.nodes)
            reason = f"no answer from {brokers}"
        elif known.error:
            reason = known.error
        else:
            count = len(known.leaders)
            reason = f"it has {count} partition{'s' * (count != 1)}, numbered from 0"
            if partition is not None:
                reason += f", so there is no partition {partition}"
        if last := failure or self._failure:
            reason += f"; the last failure: {last}"
        return f"waited {waited_s:g} s for metadata of topic {topic}: {reason}"

    # -- what is wanted -----------------------------------------------------------------------

    def add_topic(self, topic: str, now: float) -> None:
        """Note that a topic is in use.

        The first call makes a request due at once; a call after one of `errors` asks again.
        """
        if topic not in self.used_at:
            self._new.add(topic)
            self._allowed_at = -math.inf
        elif self.errors.pop(topic, None) is not None:
            self.request_update()
        self.used_at[topic] = now

    def request_update(self) -> int:
        """Ask about all topics anew, as soon as the backoff allows it; the request's number."""
        self._wants += 1
        return self._wants

    def request_topic(self, topic: str) -> None:
        """Request metadata of a topic again, and of all others.

        A broker that has lost one partition has probably lost others too.
        """
        if topic not in self._new:
            self.request_update()

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
        is_full = is_aged or self._wants > self.last_answered
        if is_aged and self._failure is None:
            self._fruitless = 0
        if is_full:
            for topic, used_at in list(self.used_at.items()):
                if used_at + self._max_idle_s <= now and topic not in self._new:
                    del self.used_at[topic]
                    self.errors.pop(topic, None)
            self._topics = {
                name: self._topics[name] for name in self._topics if name in self.used_at
            }
        topics = sorted(self.used_at if is_full else self._new)
        self._in_flight = Token(frozenset(topics), is_full, self._wants)
        asked = tuple(MetadataRequestTopic(name=each) for each in topics)
        body = MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)
        return AskedMetadata(body, self._in_flight)

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
            reason = _words(response.error_code) if response.error_code else "it names no broker"
            self.failed(token, ValueError(f"an answer to Metadata: {reason}"), now)
            return
        self._in_flight = None
        self._failure = None
        self._new -= token.topics
        if token.is_full:
            self.last_answered = token.wants
            self._aged_at = now + self._max_age_s
        before = self._nodes, self._topics
        self._nodes = nodes
        self._take_topics(token, response.topics, has_epochs=version >= _EPOCHS_SINCE)
        self._changed()
        self._fruitless = self._fruitless + 1 if before == (self._nodes, self._topics) else 0
        self._pause(now)

    def failed(self, token: Token, error: Exception, now: float) -> None:
        """Note that a request failed; what it was made for stays wanted."""
        if token is self._in_flight:
            self._in_flight = None
            self._failure = error
            self._fruitless += 1
            self._pause(now)

    def update_leader(
        self, partition: TopicPartition, leader: Leader, endpoint: Node | None
    ) -> bool:
        """Apply a leader from the answer to Produce (KIP-951); returns whether it was newer.

        `endpoint` is its address, if the answer has it.
        """
        known = self._topics.get(partition.topic)
        if known is None or not 0 <= partition.partition < len(known.leaders):
            return False
        is_there = leader.node_id in self._nodes
        if endpoint is not None and endpoint.id == leader.node_id and is_address(endpoint):
            is_there = True
        else:
            endpoint = None
        if leader.node_id < 0 or not is_there:
            return False
        if leader.epoch <= known.leaders[partition.partition].epoch:
            return False
        leaders = list(known.leaders)
        leaders[partition.partition] = leader
        self._topics = {**self._topics, partition.topic: known._replace(leaders=tuple(leaders))}
        if endpoint is not None:
            self._nodes = {**self._nodes, endpoint.id: endpoint}
        self._changed()
        return True

    # -- internal -----------------------------------------------------------------------------

    def _is_usable(self, leader: Leader) -> bool:
        return leader.node_id >= 0 and leader.node_id in self._nodes

    def _changed(self) -> None:
        self.version += 1
        self._available = {}

    def _pause(self, now: float) -> None:
        self._allowed_at = now + self._backoff.pause_s(max(self._fruitless - 1, 0))

    def _rebootstrap(self) -> None:
        """Forget everything but the bootstrap list and the topics' partition counts.

        With the counts, records can still be put into batches; leaders and epochs are unknown. The
        pause after the last answer holds: brokers that it names may be paused themselves.
        """
        self._nodes = self._bootstrap
        self._topics = {
            name: _Topic(None, (_NOBODY,) * len(known.leaders), known.error)
            for name, known in self._topics.items()
        }
        self._fruitless = 0
        self.request_update()
        self._changed()

    def _take_topics(
        self, token: Token, answers: Iterable[MetadataResponseTopic], *, has_epochs: bool
    ) -> None:
        """Replace the metadata of the requested topics."""
        by_name = {each.name: each for each in answers}
        topics = dict(self._topics)
        for name in token.topics:
            self.errors.pop(name, None)
            answer = by_name.get(name)
            old = topics.get(name, _UNKNOWN)
            if answer is None:
                topics[name] = old._replace(error="the answer of the broker leaves it out")
                self.request_update()
            elif answer.error_code:
                topics[name] = old._replace(error=_words(answer.error_code))
                error = _lasting_error(name, answer.error_code)
                if error is None:
                    self.request_update()
                else:
                    self.errors[name] = error
            else:
                topics[name] = _read_topic(answer, old, has_epochs=has_epochs)
                if self._resized is not None and len(topics[name].leaders) != len(old.leaders):
                    self._resized(name)
                is_in_trouble = any(
                    each.error_code and each.leader_id not in self._nodes
                    for each in answer.partitions
                )
                if topics[name].error or is_in_trouble:
                    self.request_update()
        self._topics = topics


def _read_topic(answer: MetadataResponseTopic, old: _Topic, *, has_epochs: bool) -> _Topic:
    """The topic from an answer; a partition with an older epoch keeps its known leader.

    Partitions must be numbered from 0 without a gap, or keys would go to the wrong ones.
    """
    topic_id = None if answer.topic_id == _NO_ID else answer.topic_id
    is_same = topic_id is None or topic_id == old.topic_id
    count = len({each.partition_index for each in answer.partitions})
    numbers = [each.partition_index for each in answer.partitions]
    if not count or min(numbers) != 0 or max(numbers) != count - 1:
        return old._replace(error="the broker numbers its partitions with gaps, or names none")
    leaders = list(old.leaders[:count]) if is_same else []
    leaders += [_NOBODY] * (count - len(leaders))
    shared: dict[Leader, Leader] = {}
    for each in answer.partitions:
        epoch = each.leader_epoch if has_epochs else NO_LEADER_EPOCH
        leader = Leader(max(each.leader_id, -1), max(epoch, NO_LEADER_EPOCH))
        if leader.epoch < 0 or leader.epoch >= leaders[each.partition_index].epoch:
            leaders[each.partition_index] = shared.setdefault(leader, leader)
    return _Topic(topic_id, tuple(leaders))


def _lasting_error(topic: str, code: int) -> Exception | None:
    """The error of a topic that waiting cannot end; None for any other."""
    match code:
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return InvalidTopicError(f"topic {topic!r}: {_words(code)}")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return AuthorizationError(f"topic {topic!r}: {_words(code)}")
    return None


def _words(code: int) -> str:
    """An error code as a sentence and its name."""
    if code not in set(ErrorCode):
        return f"error {code}, which this version does not know"
    return f"{ErrorCode(code).message} ({ErrorCode(code).name})"
