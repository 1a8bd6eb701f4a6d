"""`GroupCoordinator`: the broker that coordinates a group, looked up again whenever it is lost.

Shared by a membership and its commits: whichever needs the coordinator sends the look-up.

Not here: requests to the coordinator itself.
"""

import logging
from random import Random

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.membership.errors import is_retriable, refusal
from tailrace.client.consumer.membership.interface import NEVER, GroupRequest
from tailrace.client.errors import error_words
from tailrace.client.nodes import Backoff, Node, NodeError
from tailrace.errors import RetriableError
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger(__name__)

CONNECTION_ID_MAX = 2**31 - 1
"""Minus the node's id: the id of the connection to a coordinator, so that its requests, of which
JoinGroup is answered late, do not wait for fetches from the same broker, nor these for it."""


class GroupCoordinator:
    """The coordinator of one group, and the look-up of it."""

    def __init__(self, config: ConsumerConfig, *, chance: Random) -> None:
        self._config = config
        self._group = config.group
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self.node: Node | None = None
        """The coordinator; None while it is not known."""
        self.error: Exception | None = None
        """Why it cannot be found; None if it may be."""
        self.trouble = "its coordinator was not found"
        """Why it is not known yet, for the error of a call that has waited for it."""
        self.find_count = 0
        """Number of times that it was found."""
        self._request: GroupRequest | None = None
        self._failures = 0
        self._retry_at = -NEVER
        self._found_at = -NEVER
        self._losses = 0
        """Number of times in a row that it was lost as soon as it was found."""

    def next_request(self, now: float) -> GroupRequest | None:
        """The look-up, if the coordinator is unknown and a look-up is due."""
        if (
            self.node is not None
            or self.error is not None
            or self._request is not None
            or now < self._retry_at
        ):
            return None
        self._request = GroupRequest(
            # `key` is for brokers before Kafka 3.0, `coordinator_keys` for later ones (KIP-699).
            FindCoordinatorRequest(
                key=self._group, key_type=CoordinatorKeyType.GROUP, coordinator_keys=(self._group,)
            ),
            timeout_ms=self._config.request_timeout_ms,
        )
        return self._request

    def next_deadline(self) -> float:
        """When the next look-up is due, if the coordinator is unknown."""
        if self.node is not None or self.error is not None or self._request is not None:
            return NEVER
        return self._retry_at

    def put_back(self, request: GroupRequest) -> None:
        if request is self._request:
            self._request = None

    def unreachable(self, why: str) -> None:
        """No broker can be asked for the coordinator."""
        self.trouble = f"its coordinator was not found, {why}"

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        if request is not self._request:
            return
        self._request = None
        if isinstance(outcome, RetriableError):
            self._retry(now, why=str(outcome))
            return
        if isinstance(outcome, Exception):
            self.error = outcome
            return
        assert isinstance(outcome, FindCoordinatorResponse)
        # An answer of an old version has no list, and is about the only key.
        named = [each for each in outcome.coordinators if each.key == self._group]
        if outcome.coordinators and not named:
            self._retry(now, why="the answer names other groups")
            return
        found = named[0] if named else outcome
        code = found.error_code
        if code != ErrorCode.NONE:
            if is_retriable(code):
                self._retry(now, why=error_words(code))
            else:
                self.error = refusal(
                    code, group_id=self._group, during="FindCoordinator", said=found.error_message
                )
            return
        if found.node_id < 0 or not found.host or not 0 < found.port < 1 << 16:
            self._retry(now, why="the answer names no broker")
            return
        self.node = Node(CONNECTION_ID_MAX - found.node_id, found.host, found.port)
        # A node that is found again may be another process: sessions are counted from here.
        self.find_count += 1
        self._failures = 0
        self._found_at = now
        logger.info("group_coordinator_found group=%s node=%d", self._group, found.node_id)

    def mark_unknown(self, node: Node | None, now: float, *, why: str) -> None:
        """Forget the coordinator if it is still `node`, and look it up again.

        At once, and after a pause if that has not helped: if it was only just found again.
        """
        if node is None or node != self.node:
            return
        logger.info("group_coordinator_lost group=%s node=%s reason=%s", self._group, node, why)
        self.node = None
        # A coordinator moves when its broker is restarted, and the session runs on.
        self._retry_at = now
        # The broker that brokers name may refuse all that it is asked, as one that cannot load the
        # group does, or that does not know of its leadership yet.
        if now >= self._found_at + self._config.retry_backoff_max_ms / 1000:
            self._losses = 0
        elif self._losses:
            self._retry_at += self._backoff.pause_s(self._losses - 1)
        self._losses += 1

    def forgive(self, now: float) -> None:
        """Look it up again after a pause, though it was refused: rights may be granted."""
        error, self.error = self.error, None
        self._retry(now, why=str(error))

    def _retry(self, now: float, *, why: str) -> None:
        self._retry_at = now + self._backoff.pause_s(self._failures)
        self._failures += 1
        self.trouble = f"its coordinator was not found: {why}"
        logger.debug("group_coordinator_not_found group=%s reason=%s", self._group, why)
