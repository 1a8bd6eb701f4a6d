"""`ProducerMetadata`: the metadata of the topics that a producer sends to.

A topic is of interest from its first record on, and until `metadata.max.idle.ms` after its last.
"""

import math
from collections.abc import Callable, Sequence
from uuid import UUID

from tailrace.client.cluster_metadata import ClusterMetadata, Token, TopicMetadata
from tailrace.client.errors import error_words
from tailrace.client.nodes import Node
from tailrace.client.producer.errors import AuthorizationError, InvalidTopicError
from tailrace.client.retries import Backoff
from tailrace.protocol.errors import ErrorCode

_NO_IDS: frozenset[UUID] = frozenset()


class ProducerMetadata(ClusterMetadata):
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
        super().__init__(bootstrap, backoff, max_age_ms=max_age_ms, may_rebootstrap=may_rebootstrap)
        self.errors: dict[str, Exception] = {}
        """By topic: the error that makes waiting for it pointless, an invalid name or missing
        rights. It stays for all waiting callers until `add_topic` is called for the topic again."""
        self.used_at: dict[str, float] = {}
        """When each topic in use was last sent to; the topics need not be known."""
        self._resized = resized
        self._max_idle_s = max_idle_ms / 1000
        # The brokers are asked for before anything is sent, so the first send finds a connection.
        self.request_update()

    def add_topic(self, topic: str, now: float) -> None:
        """Note that a topic is in use.

        The first call makes a request due at once; a call after one of `errors` asks again.
        """
        if topic not in self.used_at:
            self._new.add(topic)
            # The pause between requests is for those that failed; a new topic is no retry.
            self._allowed_at = -math.inf
        elif self.errors.pop(topic, None) is not None:
            self.request_update()
        self.used_at[topic] = now

    def request_topic(self, topic: str) -> None:
        """Request metadata of a topic again, and of all others.

        A broker that has lost one partition has probably lost others too.
        """
        if topic not in self._new:
            self.request_update()

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
        known = self.topics.get(topic)
        if known is None:
            brokers = ", ".join(f"{each.host}:{each.port}" for each in self.nodes)
            reason = f"no answer from {brokers}"
        elif known.error:
            reason = known.reason
        else:
            count = len(known.leaders)
            reason = f"it has {count} partition{'s' * (count != 1)}, numbered from 0"
            if partition is not None:
                reason += f", so there is no partition {partition}"
        if last := failure or self.failure:
            reason += f"; the last failure: {last}"
        return f"waited {waited_s:g} s for metadata of topic {topic}: {reason}"

    def _topics_to_ask(
        self, now: float, *, is_full: bool
    ) -> tuple[frozenset[str], frozenset[UUID]]:
        if not is_full:
            return frozenset(self._new), _NO_IDS
        for topic, used_at in list(self.used_at.items()):
            if used_at + self._max_idle_s <= now and topic not in self._new:
                del self.used_at[topic]
                self.errors.pop(topic, None)
        self.topics = {each: at for each, at in self.topics.items() if each in self.used_at}
        return frozenset(self.used_at), _NO_IDS

    def _kept_topics(self, token: Token) -> dict[str, TopicMetadata]:  # noqa: ARG002
        return dict(self.topics)

    def _took(self, topic: str, before: TopicMetadata, now: TopicMetadata) -> None:
        self.errors.pop(topic, None)
        # Waiting cannot end these two; others, such as an unknown topic, may end by themselves.
        if now.error == ErrorCode.INVALID_TOPIC_EXCEPTION:
            self.errors[topic] = InvalidTopicError(f"topic {topic!r}: {error_words(now.error)}")
        elif now.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.errors[topic] = AuthorizationError(f"topic {topic!r}: {error_words(now.error)}")
        if self._resized is not None and len(before.leaders) != len(now.leaders):
            self._resized(topic)
