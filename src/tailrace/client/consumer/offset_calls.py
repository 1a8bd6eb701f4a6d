"""`OffsetCalls`: the operations about positions, offsets and topics."""

from collections.abc import Mapping

from tailrace.client.consumer.arguments import (
    Partitions,
    all_partitions,
    partition_of,
    partitions_of,
    topic_of,
)
from tailrace.client.consumer.cluster import describe_silence, describe_wait
from tailrace.client.consumer.engine import ConsumerEngine
from tailrace.client.consumer.errors import (
    ConsumerTimeoutError,
    InvalidTopicNameError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from tailrace.client.consumer.records import OffsetAndTimestamp
from tailrace.client.consumer.statistics import lags_of
from tailrace.client.consumer.steps import Steps, Wait
from tailrace.client.consumer.subscription import LATEST
from tailrace.client.consumer.work import Work
from tailrace.client.listings import PartitionInfo
from tailrace.client.pending import Pending, T
from tailrace.errors import kind_of
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode

_LASTING = (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""Codes of a topic in Metadata that do not change by waiting."""


class OffsetCalls:
    """Questions about offsets and topics of one consumer."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def position(self, partition: TopicPartition | tuple[str, int], deadline: float) -> Steps[int]:
        """The offset of the next record that is returned."""
        engine = self._work.engine
        engine.check_open()
        place = partition_of(partition)
        state = engine.subscription.of(place)
        engine.handling.put_back((place,))

        def is_known() -> bool:
            return state.has_position or engine.has_error

        while not state.has_position:
            is_in_time = yield Wait(is_known, deadline)
            engine.check_open()
            engine.raise_error()
            if not is_in_time and not state.has_position:
                why = describe_wait(
                    engine.metadata, engine.nodes, place.topic, partition=place.partition
                )
                raise ConsumerTimeoutError(
                    f"the position of {place} is not known in time: it waits for "
                    f"{state.phase.value}; {why}"
                )
        assert state.position is not None, "the wait has ended"
        return state.position.offset

    def offsets(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        deadline: float,
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """ListOffsets for each partition.

        Raises:
            TypeError: a partition is none, or a timestamp is no number.
        """
        self._work.engine.check_open()
        if not isinstance(timestamps, Mapping):
            raise TypeError(
                f"timestamps is {kind_of(timestamps)}; give a mapping of partitions to ms since "
                "1970"
            )
        asked = dict(zip(map(partition_of, timestamps), timestamps.values(), strict=True))
        for partition, timestamp in asked.items():
            if not isinstance(timestamp, int):
                raise TypeError(
                    f"the time for {partition} is {kind_of(timestamp)}; give ms since 1970 as int"
                )
        question = self._work.engine.lookups.ask(asked)
        about = "offsets of " + ", ".join(map(str, sorted(asked)))
        return (yield from steps_of_pending(self._work.engine, question, deadline, about=about))

    def ends(
        self, partitions: Partitions, timestamp: SpecialTimestamp, deadline: float
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset at one end of each log."""
        asked = dict.fromkeys(partitions_of(partitions), int(timestamp))
        found = yield from self.offsets(asked, deadline)
        return {each: 0 if end is None else end.offset for each, end in found.items()}

    def seek_to_time(
        self, timestamp_ms: int, partitions: tuple[Partitions, ...], deadline: float
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Read on from a time; the offsets that were found."""
        places = all_partitions(partitions) or tuple(self._work.engine.subscription.assigned)
        for each in places:
            self._work.engine.subscription.of(each)
        found = yield from self.offsets(dict.fromkeys(places, timestamp_ms), deadline)
        for each, place in found.items():
            if each not in self._work.engine.subscription.assigned:
                continue
            if place is None:
                self._work.engine.subscription.of(each).await_reset(LATEST)
            else:
                self._work.engine.seek(each, place.offset)
        self._work.engine.handling.drop(places)
        return found

    def lag(self, deadline: float) -> Steps[dict[TopicPartition, int]]:
        """Records behind the positions; asks the leaders where a fetch has not told yet."""
        engine = self._work.engine
        lags = lags_of(engine)
        for each in lags:
            yield from self.position(each, deadline)
        lags = lags_of(engine)
        unknown = {each: int(SpecialTimestamp.LATEST) for each, lag in lags.items() if lag is None}
        ends = yield from self.offsets(unknown, deadline)
        for each, end in ends.items():
            state = engine.subscription.assigned.get(each)
            if state is not None and state.position is not None and end is not None:
                lags[each] = max(0, end.offset - state.position.offset)
        return {each: lag for each, lag in lags.items() if lag is not None}

    def partitions_for(self, topic: str, deadline: float) -> Steps[list[PartitionInfo]]:
        """The partitions of a topic."""
        engine = self._work.engine
        engine.check_open()
        metadata, refused = engine.metadata, engine.cluster.errors
        topic = topic_of(topic)
        metadata.add_guest(topic)
        try:

            def is_told() -> bool:
                known = metadata.topics.get(topic)
                return bool(refused) or (known is not None and known.error in _LASTING)

            if not is_told():
                yield Wait(is_told, deadline)
            known = metadata.topics.get(topic)
            if known is not None and not known.error:
                return list(known.partitions)
            engine.check_open()
            if refused:
                raise refused.pop()
            why = describe_wait(metadata, engine.nodes, topic)
            match None if known is None else known.error:
                case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise TopicAuthorizationError(frozenset({topic}))
                case ErrorCode.INVALID_TOPIC_EXCEPTION:
                    raise InvalidTopicNameError(frozenset({topic}))
                case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(f"topic {topic!r} does not exist ({why})")
            raise ConsumerTimeoutError(why)
        finally:
            metadata.remove_guest(topic)

    def list_topics(self, deadline: float) -> Steps[Mapping[str, tuple[PartitionInfo, ...]]]:
        """All topics with their partitions."""
        self._work.engine.check_open()
        pending = self._work.engine.cluster.listings.ask()
        return (
            yield from steps_of_pending(
                self._work.engine, pending, deadline, about="the list of topics"
            )
        )


def steps_of_pending(
    engine: ConsumerEngine, pending: Pending[T], deadline: float, *, about: str
) -> Steps[T]:
    """The value of a pending call.

    Raises:
        ConsumerAuthenticationError: no broker takes the login.
        ConsumerTimeoutError: at the deadline.
    """
    refused = engine.cluster.errors
    try:
        if not pending.is_done:
            yield Wait(lambda: pending.is_done or bool(refused), deadline)
        if not pending.is_done:
            engine.check_open()
            if refused:
                raise refused.pop()
            why = pending.reason or describe_silence(engine.metadata, engine.nodes)
            raise ConsumerTimeoutError(f"{about}: not known in time: {why}")
        return pending.result()
    finally:
        pending.is_abandoned = True
