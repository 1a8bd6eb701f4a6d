"""`RequestQueue`: the waiting requests of a transaction, with their coordinators and pauses.

One request is in flight at a time. They are sent by priority, then in the order in which they were
added; an unknown coordinator is looked up first.

Not here: why a request is made and what its answer means (`flow`).
"""

from collections.abc import Callable

from tailrace.client.nodes import Backoff, Node
from tailrace.client.producer.errors import BrokerRefusedError
from tailrace.client.producer.identity.requests import (
    PendingOperation,
    Priority,
    TransactionRequest,
    find_coordinator,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.messages.find_coordinator import FindCoordinatorResponse


class RequestQueue:
    """The waiting requests and the one in flight."""

    def __init__(self, backoff: Backoff, *, transactional_id: str) -> None:
        self._backoff = backoff
        self._transactional_id = transactional_id
        self._waiting: list[TransactionRequest] = []
        self._coordinators: dict[tuple[CoordinatorKeyType, str], Node] = {}
        self.in_flight: TransactionRequest | None = None
        """The request that `take` returned and that is not answered yet."""

    def add(self, request: TransactionRequest) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def has(self, key: ApiKey) -> bool:
        """Return whether a request of this API waits."""
        return any(request.key is key for request in self._waiting)

    def first(self) -> TransactionRequest | None:
        """The request that is sent next, or None."""
        return min(self._waiting, key=lambda each: each.priority, default=None)

    def remove(self, request: TransactionRequest) -> None:
        """Remove a waiting request."""
        self._waiting.remove(request)

    def take(self, now: float) -> TransactionRequest | None:
        """Return the next request, or the look-up of its coordinator; None while it pauses."""
        request = self.first()
        if request is None:
            return None
        if request.coordinator is not None:
            request.node = self._coordinators.get((request.coordinator, request.group_id))
            if request.node is None and request.ready_at <= now:
                self._look_up(request.coordinator, request.group_id)
                return self.take(now)
        if request.ready_at > now:
            return None
        self._waiting.remove(request)
        self.in_flight = request
        return request

    def put_back(self, request: TransactionRequest) -> None:
        """Queue a taken request again, because it could not be sent."""
        self.in_flight = None
        self._waiting.append(request)

    def forget_coordinator(self, request: TransactionRequest) -> None:
        """Forget this request's coordinator, so that it is looked up again."""
        if request.coordinator is not None:
            self._coordinators.pop((request.coordinator, request.group_id), None)

    def retry(self, request: TransactionRequest, now: float, *, limit_s: float) -> None:
        """Queue a request again, with a pause of at most `limit_s`."""
        pause_s = self._backoff.pause_s(request.failures)
        request.failures += 1
        request.ready_at = now + min(pause_s, limit_s)
        self._waiting.append(request)

    def drop(
        self, error: Exception, which: Callable[[TransactionRequest], bool] = lambda _: True
    ) -> None:
        """Fail the waiting requests for which `which` is true."""
        dropped = [request for request in self._waiting if which(request)]
        self._waiting = [request for request in self._waiting if not which(request)]
        for request in dropped:
            request.pending.finish(error)

    def next_deadline(self, now: float) -> float | None:
        """Return the end of the next request's pause, or None if it has none."""
        request = self.first()
        if self.in_flight is not None or request is None or request.ready_at <= now:
            return None
        return request.ready_at

    def _look_up(self, kind: CoordinatorKeyType, group_id: str) -> None:
        name = group_id or self._transactional_id
        self.add(
            TransactionRequest(
                key=ApiKey.FIND_COORDINATOR,
                priority=Priority.FIND_COORDINATOR,
                coordinator=None,
                pending=PendingOperation(),
                make=lambda: find_coordinator(kind, name),
                accept=lambda answer: self._located((kind, group_id), answer),
            )
        )

    def _located(
        self, key: tuple[CoordinatorKeyType, str], answer: FindCoordinatorResponse
    ) -> None:
        """Store the coordinator of an answer; from v4 on it is in a list, before in fields."""
        if len(answer.coordinators) > 1:
            raise BrokerRefusedError(
                f"FindCoordinator named {len(answer.coordinators)} coordinators for one key"
            )
        found = answer.coordinators[0] if answer.coordinators else answer
        node = Node(found.node_id, found.host, found.port)
        if node.id < 0 or not node.host or not 0 < node.port < 1 << 16:
            raise BrokerRefusedError(f"FindCoordinator named no coordinator, but {node}")
        self._coordinators[key] = node
