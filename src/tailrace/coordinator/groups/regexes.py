"""Subscriptions by regular expression: when they are resolved, and what that changes.

A heartbeat never waits for a resolution, which looks at all topics: the member gets what is known,
and the rest with a later heartbeat. All expressions of a group are resolved together, when one is
new, when topics have changed, or after `group.consumer.regex.refresh.interval.ms`; but not within
ten seconds of the last time.
"""

from collections.abc import Iterable
from typing import Final

from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import regex_record, regex_tombstone
from tailrace.coordinator.groups.group_epoch import next_epoch
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.topics import compile_pattern, matching
from tailrace.coordinator.machine import CoordinatorRecord, Decision
from tailrace.values import replace

REFRESH_MIN_MS: Final = 10_000


class Regexes:
    """Resolves the regular expressions of all groups of a shard."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._resolving: set[str] = set()
        """Groups whose resolution is proposed and has not come."""

    def check(self, group: ConsumerGroup, regex: str) -> None:
        """Check an expression that a member has not had before.

        Raises:
            RefusedError: INVALID_REGULAR_EXPRESSION.
        """
        if regex and regex not in _regexes_of(group.subscriptions):
            compile_pattern(regex)

    def resolve_later(
        self,
        group: ConsumerGroup,
        subscriptions: Iterable[Subscription],
        *,
        now_ms: int,
    ) -> None:
        """Resolve the expressions of a group after this heartbeat, if it is time."""
        regexes, propose = _regexes_of(subscriptions), self._groups.propose
        if not regexes or propose is None or group.group_id in self._resolving:
            return
        group_id = group.group_id
        if group.regexes and not self._is_due(group, regexes, now_ms):
            return
        # Not in the turn of the heartbeat: 10,000 topic names take 31 ms (decision 32).
        self._resolving.add(group_id)

        def resolve(now_ms: int) -> Decision[None]:
            self._resolving.discard(group_id)
            found = self._groups.consumer(group_id)
            records = () if found is None else self._resolved(found, now_ms)
            return Decision(reply=None, records=records)

        propose(resolve)

    def _is_due(self, group: ConsumerGroup, regexes: set[str], now_ms: int) -> bool:
        known, settings = group.regexes, self._groups.consumer_settings(group.group_id)
        age_ms = now_ms - max(each.timestamp_ms for each in known.values())
        # A clock that was set back makes the age negative: resolve again.
        if 0 <= age_ms <= REFRESH_MIN_MS:
            return False
        has_new_topics = self._groups.topics.version > min(each.version for each in known.values())
        return (
            bool(regexes - known.keys())
            or has_new_topics
            or not (0 <= age_ms <= settings.regex_refresh_interval_ms)
        )

    def _resolved(self, group: ConsumerGroup, now_ms: int) -> tuple[CoordinatorRecord, ...]:
        names, version = tuple(self._groups.topics.names()), self._groups.topics.version
        resolved = {
            regex: ResolvedRegex(matching(regex, names), version, now_ms)
            for regex in sorted(_regexes_of(group.subscriptions))
        }
        before = {regex: each.topics for regex, each in group.regexes.items()}
        records = [regex_record(group.group_id, regex, each) for regex, each in resolved.items()]
        has_changed = any(
            each.topics != before.get(regex, frozenset()) for regex, each in resolved.items()
        )
        after = replace(group, regexes={**group.regexes, **resolved})
        topics = after.topics_of_all(group.subscriptions)
        _, changes = next_epoch(group, topics, self._groups.topics, is_forced=has_changed)
        return (*records, *changes)


def dropped_regexes(
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    subscriptions: Iterable[Subscription],
) -> list[CoordinatorRecord]:
    """Tombstones of the expressions that these members had, and that nobody has afterwards."""
    had = {each.subscription.regex for each in members} - {""}
    return [
        regex_tombstone(group.group_id, each) for each in sorted(had - _regexes_of(subscriptions))
    ]


def _regexes_of(subscriptions: Iterable[Subscription]) -> set[str]:
    return {each.regex for each in subscriptions if each.regex}
