"""`OffsetCalls`: the calls of a consumer about positions, offsets and topics."""

from collections.abc import Mapping

from tailrace.client.consumer.arguments import (
    Partitions,
    all_partitions,
    partition_of,
    partitions_of,
    topic_of,
)
from tailrace.client.consumer.base_consumer import BaseConsumer
from tailrace.client.consumer.errors import (
    ConsumerTimeoutError,
    InvalidTopicNameError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from tailrace.client.consumer.explanations import describe_wait
from tailrace.client.consumer.records import OffsetAndTimestamp
from tailrace.client.consumer.statistics import lags_of
from tailrace.client.consumer.subscription import LATEST
from tailrace.client.drive.operation import operation
from tailrace.client.drive.steps import Steps, Until
from tailrace.client.listings import PartitionInfo
from tailrace.errors import kind_of
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.errors import ErrorCode

_LASTING = (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""Codes of a topic in Metadata that do not change by waiting."""


class OffsetCalls(BaseConsumer):
    """Questions about offsets and topics."""

    @operation
    def position(
        self, partition: TopicPartition | tuple[str, int], timeout: float | None = None
    ) -> Steps[int]:
        """The offset of the next record that is returned; waits until it is known."""
        return self._position(partition, self._deadline(timeout))

    @operation
    def beginning_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The first offset of each partition; these need not be assigned."""
        return self._ends(partitions, SpecialTimestamp.EARLIEST, self._deadline(timeout))

    @operation
    def end_offsets(
        self, partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset after the last record of each partition, by `isolation.level`."""
        return self._ends(partitions, SpecialTimestamp.LATEST, self._deadline(timeout))

    @operation
    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        timeout: float | None = None,
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """The first record from a time on (ms since 1970), by partition; None if there is none."""
        return self._offsets_at(timestamps, self._deadline(timeout))

    @operation
    def seek_to_time(
        self, timestamp_ms: int, *partitions: Partitions, timeout: float | None = None
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Have the next `poll` read from the first record of that time on; returns its offset.

        Of all assigned partitions if none are given. None, and the end of the log, where no record
        is as late.
        """
        engine = self._engine
        places = all_partitions(partitions) or tuple(engine.subscription.assigned)
        for each in places:
            engine.subscription.of(each)
        at = dict.fromkeys(places, timestamp_ms)
        found = yield from self._offsets_at(at, self._deadline(timeout))
        for each, place in found.items():
            if each not in engine.subscription.assigned:
                continue
            if place is None:
                engine.subscription.of(each).await_reset(LATEST)
            else:
                engine.seek(each, place.offset)
        engine.handling.drop(places)
        return found

    @operation
    def lag(self, timeout: float | None = None) -> Steps[dict[TopicPartition, int]]:
        """The lag of each assigned partition: its end offset minus the position.

        The end is that of the last fetch, or is asked for where there was none yet.
        """
        engine, deadline = self._engine, self._deadline(timeout)
        lags = lags_of(engine)
        for each in lags:
            yield from self._position(each, deadline)
        lags = lags_of(engine)
        unknown = {each: int(SpecialTimestamp.LATEST) for each, lag in lags.items() if lag is None}
        ends = yield from self._offsets_at(unknown, deadline)
        for each, end in ends.items():
            state = engine.subscription.assigned.get(each)
            if state is not None and state.position is not None and end is not None:
                lags[each] = max(0, end.offset - state.position.offset)
        return {each: lag for each, lag in lags.items() if lag is not None}

    @operation
    def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> Steps[list[PartitionInfo]]:
        """The partitions of a topic, with leader and replicas.

        Raises:
            UnknownTopicError: the topic does not exist.
        """
        engine, deadline = self._engine, self._deadline(timeout)
        engine.check_open()
        metadata, refused = engine.metadata, engine.cluster.errors
        topic = topic_of(topic)
        metadata.add_guest(topic)
        try:

            def is_told() -> bool:
                known = metadata.topics.get(topic)
                return bool(refused) or (known is not None and known.error in _LASTING)

            if not is_told():
                yield Until(is_told, deadline)
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

    @operation
    def list_topics(
        self, timeout: float | None = None
    ) -> Steps[Mapping[str, tuple[PartitionInfo, ...]]]:
        """All topics that the user may see, with their partitions."""
        deadline = self._deadline(timeout)
        self._engine.check_open()
        pending = self._engine.cluster.listings.ask()
        return (yield from self._result(pending, deadline, about="the list of topics"))

    def _position(self, partition: TopicPartition | tuple[str, int], deadline: float) -> Steps[int]:
        engine = self._engine
        engine.check_open()
        place = partition_of(partition)
        state = engine.subscription.of(place)
        engine.handling.put_back((place,))

        def is_known() -> bool:
            return state.has_position or engine.has_error

        while not state.has_position:
            is_in_time = yield Until(is_known, deadline)
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

    def _offsets_at(
        self,
        timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        deadline: float,
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """ListOffsets for each partition.

        Raises:
            TypeError: a partition is none, or a timestamp is no number.
        """
        self._engine.check_open()
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
        question = self._engine.lookups.ask(asked)
        about = "offsets of " + ", ".join(map(str, sorted(asked)))
        return (yield from self._result(question, deadline, about=about))

    def _ends(
        self, partitions: Partitions, timestamp: SpecialTimestamp, deadline: float
    ) -> Steps[dict[TopicPartition, int]]:
        """The offset at one end of each log."""
        asked = dict.fromkeys(partitions_of(partitions), int(timestamp))
        found = yield from self._offsets_at(asked, deadline)
        return {each: 0 if end is None else end.offset for each, end in found.items()}
