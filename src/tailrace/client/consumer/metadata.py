"""`ConsumerMetadata`: the metadata of the topics that a consumer reads.

Of interest are topics by name, by id or by a pattern, and those that single calls ask for.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from tailrace.client.cluster_metadata import ClusterMetadata, Token, TopicMetadata
from tailrace.client.nodes import ConnectionPool, Node
from tailrace.client.retries import Backoff
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataResponseTopic


class ConsumerMetadata(ClusterMetadata):
    """Brokers and topics for one consumer; `now` is in monotonic seconds."""

    def __init__(
        self,
        bootstrap: Sequence[Node],
        backoff: Backoff,
        *,
        max_age_ms: int,
        may_rebootstrap: bool,
    ) -> None:
        super().__init__(bootstrap, backoff, max_age_ms=max_age_ms, may_rebootstrap=may_rebootstrap)
        self._names: dict[UUID, str] = {}
        self._wanted: frozenset[str] = frozenset()
        self._wanted_ids: frozenset[UUID] = frozenset()
        self._learnt: frozenset[str] = frozenset()
        """Names of topics that were asked for by id."""
        self._guests: dict[str, int] = {}
        """Topics that single calls need, with the number of these calls."""
        self._pattern: re.Pattern[str] | None = None

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic; None if it is not known, or the brokers have none."""
        known = self.topics.get(topic)
        return None if known is None else known.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

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
        # A change that only drops topics needs no request.
        wanted = frozenset(topics)
        is_more = bool(wanted - self._wanted - self.topics.keys())
        is_more = is_more or bool(ids - self._wanted_ids)
        is_more = is_more or (pattern is not None and self._pattern is None)
        self._wanted, self._wanted_ids, self._pattern = wanted, ids, pattern
        if is_more:
            self.request_update(is_urgent=True)

    def add_guest(self, topic: str) -> None:
        """Have the metadata of a topic until `remove_guest`."""
        # Several calls may want the same topic at a time.
        self._guests[topic] = self._guests.get(topic, 0) + 1
        known = self.topics.get(topic)
        if known is None or known.error:
            self.request_update(is_urgent=True)

    def remove_guest(self, topic: str) -> None:
        """Undo an `add_guest`."""
        self._guests[topic] -= 1
        if not self._guests[topic]:
            del self._guests[topic]

    def _topics_to_ask(
        self,
        now: float,  # noqa: ARG002
        *,
        is_full: bool,  # noqa: ARG002
    ) -> tuple[frozenset[str] | None, frozenset[UUID]]:
        if self._pattern is not None:
            # Only the whole list shows topics that match later.
            return None, frozenset()
        return self._named, self._wanted_ids - self._names.keys()

    def _kept_topics(self, token: Token) -> dict[str, TopicMetadata]:
        if token.topics is None:
            return {}
        # What was not asked for may be of a call that ended or began meanwhile.
        kept = self.topics.keys() & self._named - token.topics
        return {name: self.topics[name] for name in kept}

    def _expected(self, token: Token, answers: Mapping[str, MetadataResponseTopic]) -> set[str]:
        learnt = {name for name, each in answers.items() if each.topic_id in token.ids}
        self._learnt |= learnt
        # An answer about all topics leaves out those that do not exist.
        return learnt | (answers.keys() | self._wanted if token.topics is None else token.topics)

    def _is_wanted(self, topic: str) -> bool:
        pattern = self._pattern
        return topic in self._named or (pattern is not None and bool(pattern.fullmatch(topic)))

    @property
    def _named(self) -> frozenset[str]:
        return self._wanted | self._guests.keys() | self._learnt

    def _changed(self) -> None:
        super()._changed()
        self._names = {
            each.topic_id: name for name, each in self.topics.items() if each.topic_id is not None
        }


def topics_with(metadata: ConsumerMetadata, code: ErrorCode) -> frozenset[str]:
    return frozenset(name for name, each in metadata.topics.items() if each.error == code)


def replica_racks(metadata: ConsumerMetadata, topic: TopicMetadata) -> tuple[frozenset[str], ...]:
    racks = metadata.racks
    return tuple(
        frozenset(filter(None, map(racks.get, each.replicas))) for each in topic.partitions
    )


def is_online(metadata: ConsumerMetadata, partition: TopicPartition, node_id: int) -> bool:
    """Whether a broker that has a replica of the partition can be read from."""
    known = metadata.topics.get(partition.topic)
    if known is None or not 0 <= partition.partition < len(known.partitions):
        return False
    # A broker may be up while the disk of this replica has failed (KIP-112).
    is_offline = node_id in known.partitions[partition.partition].offline_replicas
    return metadata.node(node_id) is not None and not is_offline


def describe_wait(
    metadata: ConsumerMetadata, nodes: ConnectionPool, topic: str, *, partition: int | None = None
) -> str:
    """Why a topic or a partition cannot be used yet."""
    known = metadata.topics.get(topic)
    if known is None:
        reason = f"no metadata of topic {topic} came from {_addresses(metadata)}"
    elif known.error:
        reason = f"topic {topic}: {known.reason}"
    elif partition is not None and partition >= len(known.leaders):
        reason = f"topic {topic} has {len(known.leaders)} partitions, numbered from 0"
    else:
        reason = f"topic {topic} has partitions without a leader"
    return reason + _last_failure(metadata, nodes)


def describe_silence(metadata: ConsumerMetadata, nodes: ConnectionPool) -> str:
    """Why no broker has answered, as far as that is known."""
    return f"no answer from {_addresses(metadata)}{_last_failure(metadata, nodes)}"


def _addresses(metadata: ConsumerMetadata) -> str:
    return ", ".join(f"{each.host}:{each.port}" for each in metadata.nodes)


def _last_failure(metadata: ConsumerMetadata, nodes: ConnectionPool) -> str:
    failure = nodes.failure_of_any(metadata.nodes) or metadata.failure
    return "" if failure is None else f"; the last failure: {failure}"
