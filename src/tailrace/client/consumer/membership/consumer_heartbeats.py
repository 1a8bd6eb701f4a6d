"""`ConsumerHeartbeats`: ConsumerGroupHeartbeat, its fields and its times (KIP-848).

A request with all fields joins, and follows every failure; others have only what has changed.

Not here: what an answer means (`consumer_protocol`).
"""

from random import Random
from typing import Final, NamedTuple

from tailrace.client.consumer.membership.consumer_state import MemberIdentityState, MemberState
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupRequest,
    MembershipSettings,
)
from tailrace.client.consumer.membership.reconciliation import LocalAssignment, Reconciliation
from tailrace.client.nodes import Backoff, Node
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

REGEX_SINCE: Final = 1
"""First version that takes a regular expression."""

INTERVAL_S_MIN: Final = 0.01
"""Shortest interval between heartbeats, whatever a broker asks for."""


class Subscription(NamedTuple):
    """The topics that the user wants: names, or a pattern for the broker."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class _SentFields(NamedTuple):
    """The fields that the coordinator knows."""

    subscription: Subscription | None = None
    owned: LocalAssignment | None = None
    has_constants: bool = False
    """Whether it knows the rebalance timeout and the assignor."""


class ConsumerHeartbeats:
    """The heartbeats of one member; of those that are no goodbye, one is in flight at a time."""

    def __init__(
        self,
        settings: MembershipSettings,
        member: MemberIdentityState,
        reconciliation: Reconciliation,
        *,
        chance: Random,
    ) -> None:
        self._settings = settings
        self._member = member
        self._reconciliation = reconciliation
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, chance)
        self.subscription: Subscription | None = None
        """The topics that the user wants; None: to be no member."""
        self._sent = _SentFields()
        self._interval_s = 0.0
        self._failures = 0
        self._next_at = -NEVER
        """When the next heartbeat is due by the interval."""
        self._retry_at = -NEVER
        self._in_flight: GroupRequest | None = None
        self._has_used_pattern = False

    def next_request(self, node: Node, now: float) -> GroupRequest | None:
        """A heartbeat, if one is due."""
        if now < self.next_deadline():
            return None
        self._next_at = now + self._interval_s
        subscription = self.subscription or Subscription()
        self._in_flight = GroupRequest(
            self._body(subscription),
            timeout_ms=self._settings.request_timeout_ms,
            node=node,
            first_version=0 if subscription.pattern is None else REGEX_SINCE,
        )
        return self._in_flight

    def next_deadline(self) -> float:
        """When the next heartbeat is due."""
        state = self._member.state
        if state is MemberState.LEAVING:
            return -NEVER
        if not state.is_in_group or self._in_flight is not None:
            return NEVER
        is_news = self.subscription != self._sent.subscription and self.subscription is not None
        if (state.is_urgent or is_news) and not self._failures:
            return -NEVER
        return max(self._retry_at, self._next_at)

    def take(self, request: GroupRequest) -> bool:
        """Return whether this request is the one in flight, which it is not any more."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        return True

    def is_lost(self, node: Node | None) -> bool:
        """Return whether a heartbeat is in flight to another node than the coordinator."""
        return self._in_flight is not None and self._in_flight.node != node

    def put_back(self, now: float) -> None:
        """The heartbeat could not be sent: the next one has all fields."""
        self._in_flight = None
        self._sent = _SentFields()
        self._next_at = now

    def succeeded(self, interval_ms: int, now: float) -> None:
        """The coordinator has answered without an error."""
        self._failures = 0
        self._retry_at = -NEVER
        interval_s = max(interval_ms / 1000, INTERVAL_S_MIN)
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._next_at = now + interval_s

    def failed(self, now: float) -> None:
        """Send all fields, after a pause."""
        self._in_flight = None
        self._sent = _SentFields()
        self._next_at = now
        self._retry_at = now + self._backoff.pause_s(self._failures)
        self._failures += 1

    def restart(self, now: float) -> None:
        """Send all fields, without a pause."""
        self._in_flight = None
        self._sent = _SentFields()
        self._failures = 0
        self._next_at = self._retry_at = now

    def _body(self, subscription: Subscription) -> ConsumerGroupHeartbeatRequest:
        settings, member, sent = self._settings, self._member, self._sent
        is_joining = member.state is MemberState.JOINING
        has_all = is_joining or not sent.has_constants
        topics = regex = owned = None
        known = sent.subscription or Subscription()
        if is_joining or sent.subscription is None or subscription.topics != known.topics:
            topics = tuple(sorted(subscription.topics))
        self._has_used_pattern |= subscription.pattern is not None
        is_known = sent.subscription is not None and subscription.pattern == known.pattern
        if self._has_used_pattern and not is_known:
            # An empty one removes a pattern that the coordinator may still have.
            regex = subscription.pattern or ""
        current = self._reconciliation.current
        if is_joining or current != sent.owned:
            owned = self._reconciliation.report()
        self._sent = _SentFields(subscription, current, has_constants=True)
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=member.id,
            member_epoch=member.epoch,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack if is_joining else None,
            rebalance_timeout_ms=settings.max_poll_interval_ms if has_all else -1,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=settings.server_assignor if has_all else None,
            topic_partitions=owned,
        )
