"""`TopicCreation`: topics that clients and coordinators miss, created by the active controller.

    Metadata, FindCoordinator ──► create ──► CreateTopics ──► controller ──► image
                     ◄── at once, and clients ask again until the image has the topic (KIP-590)

Kafka's AutoTopicCreationManager. What a client misses is asked for as that client, whose rights and
quota count. Requests of clients for CreateTopics are not these: they are forwarded as they are.

Invariant: for a topic at most one request is under way, however many clients miss it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tailrace.client.errors import error_words
from tailrace.cluster.topic_rules import NewTopic
from tailrace.errors import TailraceError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.runtime.background import BackgroundTasks

logger = logging.getLogger(__name__)

_NO_NEWS: Final = frozenset({
    # Another broker may have asked for it first, or the client has used up its quota.
    ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED
})  # fmt: skip


class TopicCreation:
    """Asks the active controller for topics; for one loop."""

    def __init__(
        self,
        ask: Callable[[CreateTopicsRequest, RequestHeader | None], Awaitable[CreateTopicsResponse]],
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        timeout_ms: int,
    ) -> None:
        """`ask` asks the active controller, for the client of a header, or for this broker itself.

        The counts are `num.partitions` and `default.replication.factor` where this broker's own
        settings have them; -1 leaves them to the controller. `timeout_ms` is the controller's time
        for the request, `request.timeout.ms`.
        """
        self._ask = ask
        self._partition_count = partition_count
        self._replication_factor = replication_factor
        self._timeout_ms = timeout_ms
        self._asked: set[str] = set()
        """Names of the topics that are being asked for."""
        self._tasks = BackgroundTasks()

    async def create(
        self, missing: Sequence[NewTopic], client: RequestHeader | None = None
    ) -> Mapping[str, TailraceError]:
        """Ask for the topics that nobody has asked for yet, as `Services.create_topics`.

        Waits for no answer: the image says when a topic is there, and the log why one is refused.
        """
        wanted = [each for each in missing if each.name not in self._asked]
        if wanted:
            self._asked.update(each.name for each in wanted)
            # With an owner: a client that disconnects does not end it.
            self._tasks.start(self._create(wanted, client))
        return {}

    async def close(self) -> None:
        """End the requests that are under way; the controller may still carry them out."""
        await self._tasks.end()

    async def _create(self, wanted: Sequence[NewTopic], client: RequestHeader | None) -> None:
        names = [each.name for each in wanted]
        try:
            answer = await self._ask(
                CreateTopicsRequest(
                    topics=tuple(map(self._requested, wanted)), timeout_ms=self._timeout_ms
                ),
                client,
            )
            for each in answer.topics:
                if each.error_code not in _NO_NEWS:
                    logger.warning(
                        "topic_not_created name=%s reason=%s consequence=clients find no such "
                        "topic, and the next one has it asked for again",
                        each.name,
                        error_words(each.error_code, each.error_message),
                    )
        except TailraceError as error:
            logger.warning(
                "topics_not_created names=%s reason=%s consequence=the next client that misses one "
                "has it asked for again",
                ",".join(names),
                error,
            )
        finally:
            self._asked.difference_update(names)

    def _requested(self, topic: NewTopic) -> CreatableTopic:
        def own(count: int, default: int) -> int:
            return default if count == -1 else count

        return CreatableTopic(
            name=topic.name,
            num_partitions=own(topic.partition_count, self._partition_count),
            replication_factor=own(topic.replication_factor, self._replication_factor),
            configs=tuple(
                CreatableTopicConfig(name=name, value=value)
                for name, value in topic.configs.items()
            ),
        )
