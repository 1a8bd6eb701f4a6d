"""`Span`: the part of each partition that `tailrace consume` prints."""

from collections.abc import Collection, Mapping

import click

from tailrace.cli.arguments import parse_int64
from tailrace.cli.on_cluster import say
from tailrace.client.admin.offsets import (
    CommittedOffset,
    FoundOffset,
    OffsetAt,
    Place,
    find_offsets,
)
from tailrace.client.reader import ClusterReader
from tailrace.errors import FatalError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The records to print."""

    start: OffsetAt
    """The first one, where no offset is committed."""
    stop: OffsetAt | None
    """After the last one; None: the end of the log."""
    is_finite: bool
    """Whether to end where the log ends now."""
    isolation: IsolationLevel

    def begins(
        self,
        cluster: ClusterReader,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, int]:
        """The first offset to print of each partition: the one that is committed, or `start`.

        Raises:
            FatalError: the log has no such offset, of none of the partitions.
        """
        at, level = self.start, self.isolation
        found = cluster.do(find_offsets, [*partitions], at=at, isolation=level).results()
        for each, known in committed.items():
            if each in found:
                found[each] = FoundOffset(known.offset, found[each].log)
        outside = {
            each: f"offset {place.offset} is out of range for {each}: its log starts at "
            f"{place.log.start} and ends at {place.log.end}"
            for each, place in found.items()
            if place.offset != place.within and (each in committed or at.place is Place.OFFSET)
        }
        # An offset that was typed and fits no partition is a mistake. A committed one may be
        # outside because retention has deleted its record.
        if outside and len(outside) == len(found) and not committed:
            raise FatalError(f"--offset: {next(iter(outside.values()))}")
        for each, fault in outside.items():
            say(f"{fault}; reading from {found[each].within}")
        return {each: place.within for each, place in found.items()}

    def limits(
        self, cluster: ClusterReader, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """The offset to stop at in each partition; None to go on for ever."""
        if self.stop is None and not self.is_finite:
            return None
        # Asked for once, before the first record: a topic that is being written to would never end.
        at = self.stop or OffsetAt(Place.LATEST)
        found = cluster.do(find_offsets, [*partitions], at=at, isolation=self.isolation).results()
        return {each: place.offset for each, place in found.items()}


def parse_places(given: object) -> tuple[OffsetAt, OffsetAt | None]:
    """The place to begin and the place to stop that --offset gives."""
    starts, stops = [], []
    assert isinstance(given, tuple)
    for text in given:
        kind, at, number = text.rpartition("@")
        is_number = parse_int64(number.removeprefix("-")) is not None
        if kind == "e" and is_number:
            stops.append(OffsetAt(Place.TIME, int(number)))
        elif kind == "s" and is_number:
            starts.append(OffsetAt(Place.TIME, int(number)))
        # kcat's word and Kafka's.
        elif text in {"beginning", "earliest"}:
            starts.append(OffsetAt(Place.EARLIEST))
        elif text in {"end", "latest"}:
            starts.append(OffsetAt(Place.LATEST))
        elif is_number and not at:
            place = Place.FROM_LATEST if number.startswith("-") else Place.OFFSET
            starts.append(OffsetAt(place, int(number)))
        else:
            # kcat takes a word that it does not know for offset 0, and prints the whole topic.
            raise click.UsageError(
                f"--offset: {text!r} is not understood; give beginning, end, an offset, -N, s@MS "
                "or e@MS (MS: milliseconds since 1970)"
            )
    if len(starts) > 1 or len(stops) > 1:
        raise click.UsageError("--offset: give at most one start, and at most one e@MS")
    start = starts[0] if starts else OffsetAt(Place.EARLIEST)
    return start, stops[0] if stops else None
