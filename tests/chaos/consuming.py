"""Consumers of groups of four makers, which poll, commit what they have polled, and leave.

A consumer commits the offsets behind the records that it has returned since its partitions were
assigned to it, at random and often when a partition is taken from it. A commit that is refused may
have been carried out before, by a request whose answer was lost; so it has failed for nobody.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.chaos.life import EVENTS, Life, named, number_of
from tests.histories.history import Assign, Commit, Outcome, Poll, Record

POLL_S: Final = 0.2
POLLED_MAX: Final = 20

SESSION_TIMEOUTS: Final = 2
"""The session timeout in requests' timeouts."""


class Membership:
    """The partitions of a consumer with the offsets that it may commit, as its history has them."""

    def __init__(self, life: Life, *, keeps_positions: bool = False) -> None:
        """`keeps_positions`: a partition that it gets again goes on where it stood."""
        self._life = life
        self._keeps_positions = keeps_positions
        self._offsets: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        """Offsets of revoked partitions that are committed if they are assigned again."""
        self._is_dirty = False

    def assigned(self, partitions: Iterable[int]) -> None:
        """Write that partitions were assigned."""
        added = tuple(named(EVENTS, each) for each in partitions)
        self._life.recorder.note(Assign(added=added, group=self._life.plan.group))
        self._forget(added)
        self._offsets |= {each: self._kept[each] for each in added if each in self._kept}
        self._kept.clear()
        self._is_dirty = bool(self._offsets)

    def revoked(self, partitions: Iterable[int]) -> None:
        """Write that partitions were taken away."""
        removed = tuple(named(EVENTS, each) for each in partitions)
        self._life.recorder.note(Assign(removed=removed, group=self._life.plan.group))
        if self._keeps_positions:
            self._kept |= {each: self._offsets[each] for each in removed if each in self._offsets}
        self._forget(removed)

    def lost(self, partitions: Iterable[int]) -> None:
        """Write that partitions were taken away by a group that the consumer is no member of."""
        self.revoked(partitions)
        self._kept.clear()

    def polled(self, records: Iterable[tuple[int, int, bytes]]) -> None:
        """Write what a poll returned: partitions, offsets and values."""
        found = tuple(
            Record(named(EVENTS, partition), offset, value.decode())
            for partition, offset, value in records
        )
        if found:
            self._life.recorder.note(Poll(records=found, is_committed=self._life.plan.is_committed))
            for record in found:
                self._offsets[record.partition] = record.offset + 1
            self._is_dirty = True

    def wants_to_commit(self, probability: float) -> bool:
        """Whether there is something to commit, and chance would have it now."""
        is_possible = self._is_dirty and bool(self._offsets)
        return is_possible and self._life.chance.random() < probability

    def begin_commit(self) -> tuple[int, dict[int, int]]:
        """Begin a commit: its number in the history, and offsets by partition."""
        commit = Commit(group=self._life.plan.group, offsets=dict(self._offsets))
        self._is_dirty = False
        offsets = {number_of(partition): offset for partition, offset in self._offsets.items()}
        return self._life.recorder.begin(commit), offsets

    def end_commit(self, number: int, *, is_ok: bool) -> None:
        """Write the outcome of a commit."""
        self._life.recorder.end(number, Outcome.OK if is_ok else Outcome.INFO)
        self._is_dirty |= not is_ok

    def _forget(self, partitions: Iterable[str]) -> None:
        for partition in partitions:
            self._offsets.pop(partition, None)
        self._is_dirty = bool(self._offsets)


def confluent_settings(life: Life, protocol: str) -> dict[str, Any]:
    """Settings of a consumer of librdkafka, with a rebalance protocol."""
    timeout_ms = life.plan.timeout_ms
    settings: dict[str, Any] = {
        "bootstrap.servers": life.plan.bootstrap,
        "group.id": life.plan.group,
        "client.id": life.plan.process,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if life.plan.is_committed else "read_uncommitted",
        "socket.timeout.ms": timeout_ms,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if protocol == "consumer":
        return settings | {"group.protocol": "consumer"}
    return settings | {
        "session.timeout.ms": SESSION_TIMEOUTS * timeout_ms,
        "heartbeat.interval.ms": timeout_ms // 4,
        "partition.assignment.strategy": protocol,
    }


def records_of(life: Life, messages: Iterable[Any]) -> list[Any]:
    """The messages of librdkafka that are records; gives up if it will return no more of them.

    librdkafka 2.16 sends no further OffsetFetch for the partitions of one that has failed with an
    error that it does not retry, or with any error after the assignment has changed
    (confluentinc/librdkafka#5586). It reports that once, stays in the group, and neither reads nor
    gives up partitions.
    """
    records = []
    for each in messages:
        error = each.error()
        if error is None:
            records.append(each)
        elif error.str().startswith("Failed to fetch committed offset"):
            life.give_up(error.name())
    return records


def consume_with_confluent(life: Life, protocol: str) -> None:
    """Consume with librdkafka until the end of the life."""
    import confluent_kafka

    membership = Membership(life)
    consumer = confluent_kafka.Consumer(confluent_settings(life, protocol))

    def commit() -> None:
        number, offsets = membership.begin_commit()
        wanted = [
            confluent_kafka.TopicPartition(EVENTS, partition, offset)
            for partition, offset in offsets.items()
        ]
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException:
            membership.end_commit(number, is_ok=False)
        else:
            membership.end_commit(number, is_ok=all(each.error is None for each in done))

    def revoked(_: Any, partitions: Any) -> None:
        if membership.wants_to_commit(0.7):
            commit()
        membership.revoked(each.partition for each in partitions)

    consumer.subscribe(
        [EVENTS],
        on_assign=lambda _, found: membership.assigned(each.partition for each in found),
        on_revoke=revoked,
        on_lost=lambda _, lost: membership.revoked(each.partition for each in lost),
    )
    while not life.stopping.is_set():
        records = records_of(life, consumer.consume(POLLED_MAX, POLL_S))
        membership.polled((each.partition(), each.offset(), each.value()) for each in records)
        if membership.wants_to_commit(0.5):
            life.stopping.wait(life.work_s())
            commit()
    consumer.close()


def consume_with_kafka_python(life: Life) -> None:
    """Consume with kafka-python until the end of the life."""
    from tests.wire.clients import kafka

    # Records that it has returned and not committed are not returned again after a rebalance.
    membership = Membership(life, keeps_positions=True)
    timeout_ms = life.plan.timeout_ms
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=life.plan.bootstrap,
        group_id=life.plan.group,
        client_id=life.plan.process,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if life.plan.is_committed else "read_uncommitted",
        max_poll_records=POLLED_MAX,
        request_timeout_ms=timeout_ms,
        session_timeout_ms=SESSION_TIMEOUTS * timeout_ms,
        heartbeat_interval_ms=timeout_ms // 4,
        reconnect_backoff_max_ms=500,
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )

    def commit() -> None:
        number, offsets = membership.begin_commit()
        wanted = {
            kafka.TopicPartition(EVENTS, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        try:
            consumer.commit(wanted, timeout_ms=3 * timeout_ms)
        except kafka.errors.KafkaError:
            membership.end_commit(number, is_ok=False)
        else:
            membership.end_commit(number, is_ok=True)

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        # It is called on the thread that does the I/O, where nothing may wait for a commit.
        def on_partitions_revoked(self, revoked: Any) -> None:
            membership.revoked(each.partition for each in revoked)

        def on_partitions_lost(self, lost: Any) -> None:
            membership.lost(each.partition for each in lost)

        def on_partitions_assigned(self, assigned: Any) -> None:
            membership.assigned(each.partition for each in assigned)

    consumer.subscribe([EVENTS], listener=Listener())
    while not life.stopping.is_set():
        polled = consumer.poll(timeout_ms=int(POLL_S * 1000))
        membership.polled(
            (each.partition, each.offset, each.value) for some in polled.values() for each in some
        )
        if membership.wants_to_commit(0.5):
            life.stopping.wait(life.work_s())
            commit()
    consumer.close(timeout_ms=3 * timeout_ms)


def consume_with_aiokafka(life: Life) -> None:
    """Consume with aiokafka until the end of the life."""
    asyncio.run(_consume_with_aiokafka(life))


async def _consume_with_aiokafka(life: Life) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    membership = Membership(life)
    timeout_ms = life.plan.timeout_ms
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=life.plan.bootstrap,
        group_id=life.plan.group,
        client_id=life.plan.process,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if life.plan.is_committed else "read_uncommitted",
        request_timeout_ms=timeout_ms,
        session_timeout_ms=SESSION_TIMEOUTS * timeout_ms,
        heartbeat_interval_ms=timeout_ms // 4,
        # When its first look at the topics fails, as while the broker is away, it takes no other
        # before this, and assigns nothing if it leads the group.
        metadata_max_age_ms=timeout_ms,
        partition_assignment_strategy=[RangePartitionAssignor],
    )

    async def commit() -> None:
        number, offsets = membership.begin_commit()
        wanted = {
            aiokafka.TopicPartition(EVENTS, partition): offset
            for partition, offset in offsets.items()
        }
        try:
            await asyncio.wait_for(consumer.commit(wanted), 3 * timeout_ms / 1000)
        except (aiokafka.errors.KafkaError, TimeoutError):
            membership.end_commit(number, is_ok=False)
        else:
            membership.end_commit(number, is_ok=True)

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if membership.wants_to_commit(0.7):
                await commit()
            membership.revoked(each.partition for each in revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            membership.assigned(each.partition for each in assigned)

    while not life.stopping.is_set():
        try:
            await consumer.start()
            break
        except aiokafka.errors.KafkaError:
            await asyncio.to_thread(life.stopping.wait, POLL_S)
    consumer.subscribe([EVENTS], listener=Listener())
    while not life.stopping.is_set():
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=POLLED_MAX)
        membership.polled(
            (each.partition, each.offset, each.value) for some in polled.values() for each in some
        )
        if membership.wants_to_commit(0.5):
            await asyncio.to_thread(life.stopping.wait, life.work_s())
            # The partitions may have been taken away meanwhile.
            if membership.wants_to_commit(1):
                await commit()
    await asyncio.wait_for(consumer.stop(), 5 * timeout_ms / 1000)


def our_settings(life: Life, protocol: str) -> dict[str, object]:
    """Settings of a consumer of ours, with a rebalance protocol."""
    timeout_ms = life.plan.timeout_ms
    settings: dict[str, object] = {
        "bootstrap.servers": life.plan.bootstrap,
        "group.id": life.plan.group,
        "client.id": life.plan.process,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if life.plan.is_committed else "read_uncommitted",
        "max.poll.records": POLLED_MAX,
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": 3 * timeout_ms,
        "reconnect.backoff.max.ms": 500,
    }
    if protocol == "consumer":
        return settings | {"group.protocol": "consumer"}
    return settings | {
        "session.timeout.ms": SESSION_TIMEOUTS * timeout_ms,
        "heartbeat.interval.ms": timeout_ms // 4,
        "partition.assignment.strategy": protocol,
    }


def consume_with_ours(life: Life, protocol: str) -> None:
    """Consume with our `Consumer` until the end of the life."""
    from tailrace import Consumer
    from tailrace.errors import TailraceError
    from tailrace.model import TopicPartition

    membership = Membership(life)
    with Consumer(our_settings(life, protocol)) as consumer:

        def commit() -> None:
            number, offsets = membership.begin_commit()
            wanted = {TopicPartition(EVENTS, each): offset for each, offset in offsets.items()}
            try:
                consumer.commit(wanted)
            except TailraceError:
                membership.end_commit(number, is_ok=False)
            else:
                membership.end_commit(number, is_ok=True)

        def revoked(partitions: list[TopicPartition]) -> None:
            if membership.wants_to_commit(0.7):
                commit()
            membership.revoked(each.partition for each in partitions)

        consumer.subscribe(
            EVENTS,
            on_assigned=lambda found: membership.assigned(each.partition for each in found),
            on_revoked=revoked,
            on_lost=lambda lost: membership.revoked(each.partition for each in lost),
        )
        while not life.stopping.is_set():
            records = consumer.poll(POLL_S)
            membership.polled((each.partition, each.offset, each.value or b"") for each in records)
            if membership.wants_to_commit(0.5):
                life.stopping.wait(life.work_s())
                commit()


def consume_with_ours_async(life: Life, protocol: str) -> None:
    """Consume with our `AsyncConsumer` until the end of the life."""
    asyncio.run(_consume_with_ours_async(life, protocol))


async def _consume_with_ours_async(life: Life, protocol: str) -> None:
    from tailrace import AsyncConsumer
    from tailrace.errors import TailraceError
    from tailrace.model import TopicPartition

    membership = Membership(life)
    async with AsyncConsumer(our_settings(life, protocol)) as consumer:

        async def commit() -> None:
            number, offsets = membership.begin_commit()
            wanted = {TopicPartition(EVENTS, each): offset for each, offset in offsets.items()}
            try:
                await consumer.commit(wanted)
            except TailraceError:
                membership.end_commit(number, is_ok=False)
            else:
                membership.end_commit(number, is_ok=True)

        async def revoked(partitions: list[TopicPartition]) -> None:
            if membership.wants_to_commit(0.7):
                await commit()
            membership.revoked(each.partition for each in partitions)

        consumer.subscribe(
            EVENTS,
            on_assigned=lambda found: membership.assigned(each.partition for each in found),
            on_revoked=revoked,
            on_lost=lambda lost: membership.revoked(each.partition for each in lost),
        )
        while not life.stopping.is_set():
            records = await consumer.poll(POLL_S)
            membership.polled((each.partition, each.offset, each.value or b"") for each in records)
            if membership.wants_to_commit(0.5):
                await asyncio.to_thread(life.stopping.wait, life.work_s())
                await commit()


CONSUMERS: Final[dict[str, Callable[[Life], None]]] = {
    "confluent-range": lambda life: consume_with_confluent(life, "range"),
    "confluent-cooperative": lambda life: consume_with_confluent(life, "cooperative-sticky"),
    "confluent-consumer": lambda life: consume_with_confluent(life, "consumer"),
    "kafka-python": consume_with_kafka_python,
    "aiokafka": consume_with_aiokafka,
    "ours-range": lambda life: consume_with_ours(life, "range"),
    "ours-cooperative": lambda life: consume_with_ours(life, "cooperative-sticky"),
    "ours-consumer": lambda life: consume_with_ours(life, "consumer"),
    "ours-consumer-async": lambda life: consume_with_ours_async(life, "consumer"),
}
