"""The topics that a consumer group subscribes to, and the group epoch that grows with them.

Expressions are resolved after the heartbeat that needs it, because that looks at all topics: the
member gets what is known, and the rest with a later heartbeat. All expressions of a group are
resolved together, when one is new, when topics have changed, or after
`group.consumer.regex.refresh.interval.ms`; but not within ten seconds of the last time.

A hash over the topics shows whether they have changed (KIP-1101):

    topic   0:u8  id high, low:i64  name  partition count:i32  then for each partition, rising:
            number:i32  then for each rack of its replicas, sorted: size:i32  name
    group   hash of each topic:i64, in the order of their names

All little-endian; a string is its UTF-16 units and then how many there are, as an i32. A rack has
that number in front too, since it may have any characters. Kafka
computes the same number, so a group that moves between brokers of both keeps its epoch.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct, pack
from typing import Final

import xxhash

from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    ResolvedRegex,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import (
    epoch_record,
    regex_record,
    regex_tombstone,
    topics_tombstone,
)
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.topics import Topic, Topics, compile_pattern, matching
from tailrace.coordinator.machine import CoordinatorRecord, Decision
from tailrace.values import replace

REFRESH_MIN_MS: Final = 10_000
"""Kafka's own limit, which it does not let an operator change."""

_I32: Final = Struct("<i")
_U64: Final = Struct("<Q")
_UNSIGNED: Final = 2**64
_I64_LIMIT: Final = 2**63
_TOPICS_KEPT: Final = 4096
"""Topics whose hashes are kept; one with 10,000 partitions takes milliseconds."""


def next_epoch(
    group: ConsumerGroup, names: Iterable[str], topics: Topics, *, is_forced: bool
) -> tuple[int, list[CoordinatorRecord]]:
    """The epoch of a group that subscribes to `names`, and its records.

    It grows by one if it is forced to, or if one of these topics is not what it was.
    """
    found = map(topics.by_name, names)
    metadata_hash = group_hash([each for each in found if each is not None])
    # Since Kafka 4.1 the hash has replaced this record.
    records = [topics_tombstone(group.group_id)] if group.has_topic_records else []
    if not is_forced and metadata_hash == group.metadata_hash:
        return group.epoch, records
    records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return group.epoch + 1, records


def group_hash(topics: Iterable[Topic]) -> int:
    """The hash over the topics of a group, as a signed number of 64 bits; 0 if there are none."""
    ordered = sorted(topics, key=lambda topic: topic.name)
    if not ordered:
        return 0
    # By name, so that the order in which members subscribe does not count.
    return _signed(
        xxhash.xxh3_64_intdigest(b"".join([_U64.pack(_topic_hash(each)) for each in ordered]))
    )


def topic_hash(topic: Topic) -> int:
    return _signed(_topic_hash(topic))


@lru_cache(_TOPICS_KEPT)
def _topic_hash(topic: Topic) -> int:
    stream = bytearray(1)
    stream += _U64.pack(topic.topic_id.int // _UNSIGNED)
    stream += _U64.pack(topic.topic_id.int % _UNSIGNED)
    _put_string(stream, topic.name)
    stream += _I32.pack(topic.partition_count)
    if topic.racks:
        for partition in range(topic.partition_count):
            stream += _I32.pack(partition)
            # Java sorts strings by their UTF-16 units.
            for rack in sorted(topic.racks[partition], key=lambda each: each.encode("utf-16-be")):
                stream += _I32.pack(len(rack.encode("utf-16-le")) // 2)
                _put_string(stream, rack)
    else:
        stream += pack(f"<{topic.partition_count}i", *range(topic.partition_count))
    return xxhash.xxh3_64_intdigest(stream)


def _put_string(stream: bytearray, text: str) -> None:
    # Java's strings are UTF-16, and the hash has to be Kafka's.
    units = text.encode("utf-16-le", "surrogatepass")
    stream += units + _I32.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - _UNSIGNED if value >= _I64_LIMIT else value


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
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """Resolve the expressions of a group after this heartbeat, if it is time.

        As in Kafka only topics match that the client of this heartbeat may describe.
        """
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
            records = () if found is None else self._resolved(found, now_ms, may_describe)
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

    def _resolved(
        self, group: ConsumerGroup, now_ms: int, may_describe: Callable[[str], bool] | None
    ) -> tuple[CoordinatorRecord, ...]:
        names, version = tuple(self._groups.topics.names()), self._groups.topics.version

        def described(topics: frozenset[str]) -> frozenset[str]:
            return topics if may_describe is None else frozenset(filter(may_describe, topics))

        resolved = {
            regex: ResolvedRegex(described(matching(regex, names)), version, now_ms)
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
