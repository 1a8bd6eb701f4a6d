"""`Cluster`: sends a consumer's Metadata requests, for its own use and for callers.

Not here: what is known of the cluster (`metadata`).
"""

from collections.abc import Callable

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import consumer_error
from tailrace.client.consumer.metadata import ConsumerMetadata
from tailrace.client.listings import TopicListings
from tailrace.client.nodes import Node, Nodes, RequestOutcome
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse


class Cluster:
    """Requests that any broker answers; times are monotonic seconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        metadata: ConsumerMetadata,
        nodes: Nodes,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._nodes = nodes
        self._clock = clock
        self.errors: list[Exception] = []
        """The refused login, if there is one; the next call that waits raises it."""
        self.listings = TopicListings(
            nodes, timeout_ms=config.request_timeout_ms, error_of=consumer_error
        )

    def send(self, now: float) -> None:
        """Send the requests that are due and can be sent now."""
        metadata = self._metadata
        if metadata.due_in(now) <= 0:
            node = self.any_node(now)
            if node is not None:
                found = metadata.next_request(now)
                assert found is not None, "a request is due"
                body, token = found
                version = self._nodes.version_of(node.id, ApiKey.METADATA)

                def take(outcome: RequestOutcome) -> None:
                    if isinstance(outcome, MetadataResponse):
                        metadata.answered(token, outcome, self._clock(), version=version)
                    else:
                        assert isinstance(outcome, Exception), "Metadata has an answer"
                        metadata.failed(token, outcome, self._clock())

                self._ask(node, body, done=take, now=now)
        self.listings.send(self.any_node, now)

    def any_node(self, now: float) -> Node | None:
        """A node that is ready; if none is, one gets a connection."""
        nodes = self._metadata.nodes
        node = self._nodes.least_loaded(nodes, now)
        if node is not None:
            return node if self._nodes.connect(node, now) else None
        if all(self._nodes.failure(each.id) is not None for each in nodes):
            error = self._nodes.login_error(nodes)
            if error is not None:
                self.errors[:] = [consumer_error(error)]
            self._metadata.no_node(now)
        return None

    def _ask(
        self,
        node: Node,
        body: MetadataRequest,
        *,
        done: Callable[[RequestOutcome], None],
        now: float,
    ) -> None:
        timeout_ms = self._config.request_timeout_ms
        self._nodes.send(node.id, body, now=now, done=done, timeout_ms=timeout_ms)


def describe_wait(
    metadata: ConsumerMetadata, nodes: Nodes, topic: str, *, partition: int | None = None
) -> str:
    """Why a topic or a partition cannot be used yet."""
    known = metadata.topics.get(topic)
    if known is None:
        reason = f"no metadata of topic {topic} came from {_addresses(metadata)}"
    elif known.error:
        code = known.error
        name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
        reason = f"topic {topic}: {name}"
    elif partition is not None and partition >= len(known.leaders):
        reason = f"topic {topic} has {len(known.leaders)} partitions, numbered from 0"
    else:
        reason = f"topic {topic} has partitions without a leader"
    return reason + _last_failure(metadata, nodes)


def describe_silence(metadata: ConsumerMetadata, nodes: Nodes) -> str:
    """Why no broker has answered, as far as that is known."""
    return f"no answer from {_addresses(metadata)}{_last_failure(metadata, nodes)}"


def _addresses(metadata: ConsumerMetadata) -> str:
    return ", ".join(f"{each.host}:{each.port}" for each in metadata.nodes)


def _last_failure(metadata: ConsumerMetadata, nodes: Nodes) -> str:
    failure = nodes.failure_of_any(metadata.nodes) or metadata.failure
    return "" if failure is None else f"; the last failure: {failure}"
