"""`tailrace consume --group`: a member of the group, which commits what it has printed.

Records are printed and flushed before the next poll, and rebalances take place inside of polls. So
what is committed when partitions go away is what has left this process.
"""

from collections.abc import Sequence
from itertools import groupby
from math import inf

from tailrace.cli.arguments import drop_output
from tailrace.cli.on_cluster import Connection, faults_in_flags, say
from tailrace.cli.printer import POLL_S, Committer, Printer, Retries
from tailrace.cli.span import Span
from tailrace.client.admin.offsets import CommittedOffset
from tailrace.client.consumer import Consumer, ConsumerRecord
from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.membership.errors import CommitFailedError
from tailrace.client.reader import ClusterReader
from tailrace.client.topics import find_partitions
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.records.builder import Record


def read_as_member(
    connection: Connection, topic: str, *, group: str, printer: Printer, span: Span
) -> None:
    """Print records of the partitions that the group assigns, until Ctrl-C or the end of `span`.

    Raises:
        ConfigError: a setting is unknown or cannot be used; named as it is typed.
        UnreachableBrokerError: no broker can be reached.
        UnknownTopicError: there is no such topic.
    """
    settings = {
        "client.id": "tailrace-cli",
        **connection.settings,
        # From here on over what --option says: these settings have flags of their own, or the
        # command relies on them.
        "bootstrap.servers": connection.bootstrap,
        "group.id": group,
        # It would commit what was polled, and this command commits what was printed.
        "enable.auto.commit": "false",
        # `_assigned` seeks in each partition; this is for an offset that retention deletes later.
        "auto.offset.reset": "earliest",
        "isolation.level": span.isolation.name.lower(),
    }
    with faults_in_flags():
        # All settings are parsed here, also those of the consumer alone, so that a fault names its
        # flag.
        cluster = ClusterReader(parse_consumer_config(settings))
    try:
        # Before the group is joined, which would rebalance it for the sake of a typing error.
        find_partitions(cluster, topic, None)
        consumer = Consumer(settings)
        member = _Member(consumer, cluster, printer=printer, span=span)
        try:
            with printer.ctrl_c:
                member.follow(topic)
        except KeyboardInterrupt:
            printer.flush()
            raise
        except BrokenPipeError:
            drop_output()
        finally:
            # It leaves the group: others need not wait for session.timeout.ms.
            consumer.close()
    finally:
        cluster.close()


class _Member:
    """One member of the group, and what it still has to print."""

    def __init__(
        self, consumer: Consumer, cluster: ClusterReader, *, printer: Printer, span: Span
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._printer = printer
        self._span = span
        self._limits: dict[TopicPartition, int] | None = None
        """The offset to stop at in each own partition; None to go on for ever."""
        self._has_joined = False
        self._committer = Committer(self._commit)

    def follow(self, topic: str) -> None:
        """Print until there is enough."""
        self._consumer.subscribe(
            topic, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )
        retries = Retries()
        while not self._printer.has_enough and not self._is_over():
            with retries.attempt(is_finite=self._limits is not None):
                # Rebalances take place in the poll. Ctrl-C in the middle of one would skip the
                # commit of partitions that are given up.
                with self._printer.ctrl_c.held():
                    records = self._consumer.poll(POLL_S)
                for place, part in groupby(records, lambda each: each.topic_partition):
                    self._print(place, [*part])
                self._printer.flush()
                self._note_positions()
                self._committer.commit_if_due(self._printer.flushed)

    def _print(self, place: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        limit = None if self._limits is None else self._limits[place]
        fitting = [each for each in records if limit is None or each.offset < limit]
        if fitting and not self._printer.has_enough:
            shown = (
                Record(each.offset, each.timestamp, each.key, each.value, each.headers)  # type: ignore[arg-type]
                for each in fitting
            )
            self._printer.print(place, shown, next_offset=fitting[-1].offset + 1)
        # Nothing after the limit is printed, so nothing more need be fetched.
        if len(fitting) < len(records):
            self._consumer.pause(place)

    def _note_positions(self) -> None:
        """Count all before the positions as printed, once what was polled has been printed.

        The last record may be followed by markers and aborted records, which nobody prints.
        """
        if self._printer.has_enough:
            return
        for place, found in self._consumer.statistics().partitions.items():
            if found.position is not None and place in self._printer.flushed:
                limit = inf if self._limits is None else self._limits[place]
                self._printer.begin(place, int(min(found.position, limit)))

    def _is_over(self) -> bool:
        """Whether all that this member was given is printed."""
        if self._limits is None or not self._has_joined:
            return False
        # A member without partitions is done too: others print the records.
        return all(self._consumer.position(each) >= end for each, end in self._limits.items())

    def _commit(self, offsets: dict[TopicPartition, int]) -> bool:
        try:
            self._consumer.commit(offsets)
        # A commit fails if the group has begun a new generation without this member. The next owner
        # begins at the last commit, and the records are printed twice but not lost.
        except (RetriableError, CommitFailedError) as error:
            say(f"{error}; what was printed since the last commit may be printed again")
            return False
        return True

    # -- in rebalances ------------------------------------------------------------------------

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        stored = self._consumer.committed(partitions)
        known = {
            each: CommittedOffset(offset=found.offset)
            for each, found in stored.items()
            if found is not None
        }
        for each, offset in self._span.begins(self._cluster, partitions, known).items():
            self._consumer.seek(each, offset)
            self._printer.begin(each, offset)
        limits = self._span.limits(self._cluster, partitions)
        if limits is not None:
            self._limits = (self._limits or {}) | limits
        self._has_joined = True

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        flushed = self._printer.flushed
        self._committer.commit({each: flushed[each] for each in partitions if each in flushed})
        self._lost(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        # No commit: partitions that are lost may have another owner already (KIP-429).
        for each in partitions:
            self._printer.forget(each)
            self._committer.forget(each)
            if self._limits is not None:
                self._limits.pop(each, None)
