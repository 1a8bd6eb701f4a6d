"""`ClusterRequests`: sends a client's Metadata requests, for its own use and for callers.

Not here: what is known of the cluster (`cluster_metadata`).
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from tailrace.client.cluster_metadata import ClusterMetadata, PartitionInfo, Token, partitions_of
from tailrace.client.nodes import (
    SILENT_S,
    ConnectionPool,
    DisconnectedError,
    Node,
    NodeError,
    RequestOutcome,
    RequestTimedOutError,
)
from tailrace.client.pending import Pending
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

Listing = Mapping[str, tuple[PartitionInfo, ...]]
"""Topics by name, with their partitions in order."""


class _Asked(NamedTuple):
    """A caller's request."""

    pending: Pending[Listing]
    body: MetadataRequest


class TopicListings:
    """The requests of one client, under the lock of which every method is called."""

    def __init__(
        self, nodes: ConnectionPool, *, timeout_ms: int, error_of: Callable[[Exception], Exception]
    ) -> None:
        """`error_of` makes the client's own error of one of a connection."""
        self._nodes = nodes
        self._timeout_ms = timeout_ms
        self._error_of = error_of
        self._unsent: list[_Asked] = []

    def ask(self, topics: Sequence[str] | None = None) -> Pending[Listing]:
        """Ask for these topics, or for all; those that do not exist are left out of the answer."""
        pending: Pending[Listing] = Pending()
        named = None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics)
        body = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        self._unsent.append(_Asked(pending, body))
        return pending

    def send(self, any_node: Callable[[float], Node | None], now: float) -> None:
        """Send what waits, if `any_node` gives a node that is ready; `now` is in monotonic s."""
        while self._unsent:
            node = any_node(now)
            if node is None:
                return
            asked = self._unsent.pop(0)
            # Its caller has gone.
            if not asked.pending.is_abandoned:
                self._send(node, asked, now)

    def fail(self, error: Exception) -> None:
        """End all requests that wait for a node with an error."""
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            each.pending.fail(error)

    def _send(self, node: Node, asked: "_Asked", now: float) -> None:
        pending = asked.pending

        def take(outcome: RequestOutcome) -> None:
            if isinstance(outcome, MetadataResponse):
                pending.settle(listed_topics(outcome))
            elif isinstance(outcome, DisconnectedError):
                # For the error, if the time limit comes before another broker answers.
                pending.reason = str(outcome)
                self._unsent.append(asked)
            else:
                assert isinstance(outcome, Exception), "Metadata has an answer"
                pending.fail(self._error_of(outcome))

        self._nodes.send(node.id, asked.body, now=now, done=take, timeout_ms=self._timeout_ms)


def listed_topics(response: MetadataResponse) -> Listing:
    """The topics of an answer that can be used, with their partitions in order."""
    return {
        each.name: partitions_of(each.name, each)
        for each in response.topics
        if each.name and not each.error_code
    }


class _Waiting(NamedTuple):
    """The request for metadata that is under way."""

    token: Token
    node: Node
    until: float
    """When another broker is asked."""


class ClusterRequests:
    """Requests that any broker answers; times are monotonic seconds.

    A broker that does not answer a request for metadata holds it up for `SILENT_S`, not for
    `request.timeout.ms`: then another one is asked. Each time in a row the wait is twice as long,
    since all of them may be slow.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        nodes: ConnectionPool,
        *,
        timeout_ms: int,
        may_create_topics: Callable[[], bool],
        clock: Callable[[], float],
        error_of: Callable[[Exception], Exception],
    ) -> None:
        """`error_of` makes the client's own error of one of a connection."""
        self._metadata = metadata
        self._nodes = nodes
        self._timeout_ms = timeout_ms
        self._may_create_topics = may_create_topics
        self._clock = clock
        self._error_of = error_of
        self._failures = 0
        """Failures of connections that were seen."""
        self._waits_for_node = False
        self._waiting: _Waiting | None = None
        self._silences = 0
        """Requests in a row that were left for another broker."""
        self.errors: list[Exception] = []
        """The refused login, if there is one; the next call that waits raises it."""
        self.listings = TopicListings(nodes, timeout_ms=timeout_ms, error_of=error_of)
        """Requests of callers for topics."""

    def send(self, now: float) -> None:
        """Send the requests that are due and can be sent now."""
        metadata = self._metadata
        self._waits_for_node = False
        if self._nodes.failure_count != self._failures:
            # A broker that is gone may have been replaced.
            self._failures = self._nodes.failure_count
            metadata.request_update()
        if self._waiting is not None and now >= self._waiting.until:
            self._leave(self._waiting, now)
        if metadata.due_in(now) <= 0:
            node = self._nodes.least_loaded(metadata.nodes, now)
            if node is None:
                self._note_refused_login()
                metadata.no_node(now)
            elif self._nodes.connect(node, now):
                self._ask(node, now)
            else:
                self._waits_for_node = True
        # No broker will answer, so these need not wait for their time limit.
        refused = self._nodes.login_error(metadata.nodes)
        if refused is not None:
            self.listings.fail(self._error_of(refused))
        self.listings.send(self.any_node, now)

    def next_deadline(self, now: float) -> float:
        """When a request is due; infinite while a connection is made for it (see `nodes`)."""
        due_in = self._metadata.due_in(now)
        due_at = inf if self._waits_for_node and due_in <= 0 else now + due_in
        return due_at if self._waiting is None else min(due_at, self._waiting.until)

    def any_node(self, now: float) -> Node | None:
        """A node that is ready; if none is, one gets a connection."""
        node = self._nodes.least_loaded(self._metadata.nodes, now)
        if node is not None:
            return node if self._nodes.connect(node, now) else None
        self._note_refused_login()
        if self._metadata.due_in(now) > 0:
            # So that `no_node` is called in time, and the bootstrap list tried.
            self._metadata.request_update()
        return None

    def _note_refused_login(self) -> None:
        error = self._nodes.login_error(self._metadata.nodes)
        if error is not None:
            self.errors[:] = [self._error_of(error)]

    def _leave(self, waiting: _Waiting, now: float) -> None:
        """Have another broker asked, if one can be; an answer that still comes is ignored."""
        wait_s = SILENT_S * 2**self._silences
        other = self._nodes.least_loaded(self._metadata.nodes, now)
        if other is None or other == waiting.node:
            self._waiting = waiting._replace(until=now + wait_s)
            return
        self._waiting = None
        self._silences += 1
        error = RequestTimedOutError(f"{waiting.node}: no answer to Metadata for {wait_s:g} s")
        self._metadata.failed(waiting.token, error, now)

    def _ask(self, node: Node, now: float) -> None:
        metadata = self._metadata
        asked = metadata.next_request(now, may_create=self._may_create_topics())
        assert asked is not None, "a request is due"
        token = asked.token
        try:
            # The answer does not say its version, which decides whether its leader epochs can be
            # trusted.
            version = self._nodes.version_of(node.id, ApiKey.METADATA)
        except NodeError as error:
            metadata.failed(token, error, now)
            return

        self._waiting = _Waiting(token, node, now + SILENT_S * 2**self._silences)

        def take(outcome: RequestOutcome) -> None:
            if self._waiting is not None and self._waiting.token is token:
                self._waiting, self._silences = None, 0
            if isinstance(outcome, MetadataResponse):
                metadata.answered(token, outcome, self._clock(), version=version)
            else:
                assert isinstance(outcome, Exception), "Metadata has an answer"
                metadata.failed(token, outcome, self._clock())

        self._nodes.send(node.id, asked.body, now=now, done=take, timeout_ms=self._timeout_ms)
