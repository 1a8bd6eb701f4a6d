"""Throttles of partitions that move: set for a batch, and removed (KIP-73).

    topics      leader.replication.throttled.replicas, follower.replication.throttled.replicas
    brokers     leader.replication.throttled.rate, follower.replication.throttled.rate

As by kafka-reassign-partitions: every replica that a partition has may lead it while it moves and
is kept to the leaders' rate, and those that are added to the followers'. Replicas in sync are never
throttled.

Invariant: topics are changed before brokers, and brokers are restored before topics. So while a
topic has throttled replicas of these brokers, a run that was interrupted may have left rates too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tailrace.client.admin.configs import (
    ConfigResource,
    describe_configs,
    incremental_alter_configs,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.migration.plan import Move
from tailrace.client.migration.survey import do
from tailrace.errors import RetriableError, TailraceError
from tailrace.protocol.config_resources import ConfigSource, ResourceType

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


def set_throttles(
    call: Call, moves: Sequence[Move], *, rate: int, brokers: Collection[int]
) -> Steps[None]:
    """Keep the copies of a batch to a rate, on these of their brokers.

    Raises:
        TailraceError: a broker refuses, or does not answer.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in moves:
        topic, number = move.partition
        leaders.setdefault(topic, []).extend(f"{number}:{each}" for each in move.replicas)
        followers.setdefault(topic, []).extend(f"{number}:{each}" for each in move.added)
    outcomes = yield from do(
        call,
        incremental_alter_configs,
        {
            ConfigResource(ResourceType.TOPIC, topic): {
                LEADERS: leaders[topic],
                FOLLOWERS: followers[topic],
            }
            for topic in leaders
        },
    )
    # A topic that was deleted meanwhile needs no throttle.
    _raise(outcomes, but=RetriableError)
    involved = {each for move in moves for each in (*move.replicas, *move.target)}
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), rate)
    outcomes = yield from do(
        call,
        incremental_alter_configs,
        {_broker(each): rates for each in sorted(involved & set(brokers))},
    )
    _raise(outcomes)


def unthrottle_topics(call: Call, topics: Iterable[str]) -> Steps[None]:
    """Remove the throttled replicas of these topics; the rates of brokers stay.

    Raises:
        TailraceError: a broker refuses, or does not answer.
    """
    removed: dict[ConfigResource, Mapping[str, object]] = {
        ConfigResource(ResourceType.TOPIC, each): dict.fromkeys((LEADERS, FOLLOWERS))
        for each in topics
    }
    outcomes = yield from do(call, incremental_alter_configs, removed)
    _raise(outcomes, but=RetriableError)


def clear_throttles(
    call: Call, topics: Iterable[str], *, brokers: Collection[int], moved: Collection[int]
) -> Steps[None]:
    """Remove what is left of throttles, by this run or by one that was interrupted.

    `brokers` are those that can be asked; `moved` those that partitions move between: throttled
    replicas of others are not of a move.

    Raises:
        TailraceError: a broker refuses, or does not answer.
    """
    throttled = yield from _throttled_topics(call, topics, moved)
    if not throttled:
        return
    found = yield from do(
        call,
        describe_configs,
        [_broker(each) for each in sorted(brokers)],
        names=(LEADER_RATE, FOLLOWER_RATE),
    )
    changes: dict[ConfigResource, Mapping[str, object]] = {}
    # A broker that has died keeps its rate, which counts for nothing without throttled replicas.
    _raise(found, but=RetriableError)
    for resource, settings in found.succeeded.items():
        names = [
            each.name
            for each in settings.values()
            # Not those that a file gives, or the default of all brokers.
            if each.source == ConfigSource.DYNAMIC_BROKER
        ]
        if names:
            changes[resource] = dict.fromkeys(names)
    _raise((yield from do(call, incremental_alter_configs, changes)), but=RetriableError)
    yield from unthrottle_topics(call, throttled)


def _throttled_topics(
    call: Call, topics: Iterable[str], moved: Collection[int]
) -> Steps[list[str]]:
    """The topics with throttled replicas on these brokers."""
    found = yield from do(
        call,
        describe_configs,
        [ConfigResource(ResourceType.TOPIC, each) for each in sorted(topics)],
        names=(LEADERS, FOLLOWERS),
    )
    return [
        resource.name
        for resource, settings in found.succeeded.items()
        if any(_is_of(each.value, moved) for each in settings.values() if each.is_own)
    ]


def _is_of(value: str | None, brokers: Collection[int]) -> bool:
    """Whether throttled replicas are of a move between these brokers."""
    # `*` is what an operator sets for good; no move does.
    pairs = [each.rpartition(":") for each in (value or "").split(",")]
    return any(number.isdigit() and int(number) in brokers for _, _, number in pairs)


def _broker(number: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(number))


def _raise(
    outcomes: Outcomes[ConfigResource, Any], *, but: type[TailraceError] | None = None
) -> None:
    for error in outcomes.errors.values():
        if but is None or not isinstance(error, but):
            raise error
