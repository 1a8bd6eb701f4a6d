"""A topic read by a consumer group: two consumers of librdkafka share its partitions.

They commit half-way, so that the group has a lag to show, and again at the end.

Not here: a consumer of our own; any Kafka client can be a member of a group.

Invariant: `consume` returns only when the group has committed the end of every partition and each
record was read once.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tailrace.errors import FatalError
from tailrace.values import dataclass

GROUP = "flights-board"
MEMBER_COUNT = 2
WAIT_SECONDS_MAX = 60
"""For any progress; on this machine it usually takes less than a second."""

BATCH_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """Counts of one call of `consume`."""

    group: str
    records: Sequence[int]
    """Records that each member has read in this run."""


def consume(
    topic: str,
    *,
    end_offsets: Sequence[int],
    bootstrap_servers: str,
    say: Callable[[str], object],
) -> Consumed:
    """Read the topic up to `end_offsets`, from where the group has committed.

    Half-way, `say` gets the command that shows the group's lag, and what it prints.

    Raises:
        FatalError: a consumer fails or gets nothing for a minute, or a record is read twice.
    """
    with ExitStack() as cleanup:
        members = [_member(bootstrap_servers) for _ in range(MEMBER_COUNT)]
        for member in members:
            cleanup.callback(member.close)
        try:
            committed = members[0].committed(
                [TopicPartition(topic, number) for number in range(len(end_offsets))],
                WAIT_SECONDS_MAX,
            )
            # Offsets are below 0 where the group has committed nothing (librdkafka's
            # OFFSET_INVALID).
            missing = sum(end_offsets) - sum(max(each.offset, 0) for each in committed)
            reader = _Reader(members, positions=[max(each.offset, 0) for each in committed])
            # Committed before it moves, a partition continues with the other member where this one
            # was.
            for member in members:
                member.subscribe([topic], on_revoke=_commit)
            reader.read(missing // 2)
            say(_lag(bootstrap_servers))
            reader.read(missing)
        except KafkaException as error:
            raise FatalError(f"the group {GROUP} cannot read {topic}: {error}") from error
        if reader.positions != [*end_offsets]:
            raise FatalError(
                f"the group {GROUP} has read {topic} up to {reader.positions}, "
                f"and its partitions end at {list(end_offsets)}"
            )
    return Consumed(group=GROUP, records=reader.counts)


class _Reader:
    """Takes turns with the members of a group, and counts what each of them gets."""

    def __init__(self, members: Sequence[Consumer], *, positions: list[int]) -> None:
        self.counts = [0] * len(members)
        self.positions = positions
        """The offset of the next record to read, by partition."""
        self._members = members

    def read(self, target: int) -> None:
        """Read until the members have read `target` records together, and commit.

        Raises:
            FatalError: nothing comes, or a record that is not the next one of its partition.
            KafkaException: a consumer reports an error.
        """
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sum(self.counts) < target:
            for number, member in enumerate(self._members):
                # Short: the members take turns, and librdkafka calls `on_revoke` in here alone.
                for message in member.consume(BATCH_RECORDS, timeout=0.05):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    partition, offset = message.partition(), message.offset()
                    if offset != self.positions[partition]:
                        raise FatalError(
                            f"partition {partition}: read offset {offset}, and expected "
                            f"{self.positions[partition]}"
                        )
                    self.positions[partition] += 1
                    self.counts[number] += 1
                    deadline = time.monotonic() + WAIT_SECONDS_MAX
            if time.monotonic() > deadline:
                raise FatalError(
                    f"the group {GROUP} got no record for {WAIT_SECONDS_MAX} s, "
                    f"and {target - sum(self.counts):,} are still to come"
                )
        for member in self._members:
            _commit(member, member.assignment())


def _member(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # It would write into the progress that is shown; errors come as messages all the same.
            "log_level": 0,
        }
    )


def _commit(member: Consumer, partitions: Sequence[TopicPartition]) -> None:
    """Commit what the member has read of these partitions."""
    # The position is OFFSET_INVALID (-1001) where the member has read nothing yet.
    read = [each for each in member.position(list(partitions)) if each.offset >= 0]
    if read:
        member.commit(offsets=read, asynchronous=False)


def _lag(bootstrap_servers: str) -> str:
    """The command that shows the group's lag, and its output."""
    # As a user would ask, so that what is shown is what the command prints.
    arguments = ["group", "describe", GROUP, "--bootstrap", bootstrap_servers]
    shown = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "tailrace", *arguments],
        capture_output=True, text=True, check=False, timeout=WAIT_SECONDS_MAX,
    )  # fmt: skip
    if shown.returncode:
        raise FatalError(f"tailrace group describe failed: {shown.stderr.strip()}")
    return f"$ tailrace {shlex.join(arguments)}\n{shown.stdout.rstrip()}"
