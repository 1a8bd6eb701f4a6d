"""Followers, consumers and tools that ask for anything, of a broker that leads and follows in turn.

Offsets, epochs, replica ids and registrations are drawn, so most of them are lies. Whatever comes,
the broker answers with one of Kafka's codes, nobody sees a record too early, and nothing is below
the high watermark that a member of the ISR has not said to have.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.errors import ErrorCode
from tailrace.records.batch import read_batches
from tailrace.testing import Outside, virtual_runtime
from tests.examples import examples
from tests.unit.handlers.replica_broker import (
    CONSUMER,
    FIRST,
    FOURTH,
    ME,
    SECOND,
    THIRD,
    Broker,
    broker_epoch,
)

TOOL = -2
OFFSETS = st.one_of(st.integers(-2, 12), st.sampled_from([-(2**63), 2**31, 2**63 - 1]))
EPOCHS = st.one_of(st.just(-1), st.integers(-1, 6), st.sampled_from([-(2**31), 2**31 - 1]))

FETCHES = st.fixed_dictionaries({
    "offset": OFFSETS,
    "replica": st.sampled_from([SECOND, SECOND, THIRD, FOURTH, ME, CONSUMER, CONSUMER, TOOL, 99]),
    "version": st.sampled_from([4, 8, 9, 11, 12, 13, 15, 17, 18, 18, 18]),
    "current_leader_epoch": EPOCHS,
    "last_fetched_epoch": EPOCHS,
    "log_start_offset": OFFSETS,
    "partition_max_bytes": st.sampled_from([1 << 20, 1 << 20, 1, 0, -1]),
    "isolation_level": st.sampled_from([0, 0, 1]),
    "rack_id": st.sampled_from(["", "b", "c"]),
    "lateness": st.sampled_from([0, 0, 0, 1, -1]),
})  # fmt: skip

STEPS = st.one_of(
    st.tuples(st.just("fetch"), FETCHES),
    st.tuples(st.just("fetch"), FETCHES),
    st.tuples(st.just("fetch"), FETCHES),
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(
        st.just("assign"),
        st.tuples(
            st.sampled_from([ME, ME, ME, SECOND, -1]),
            st.sampled_from([(ME,), (ME, SECOND), (ME, SECOND, THIRD)]),
        ),
    ),
    st.tuples(st.just("cool down"), st.none()),
)

# What Kafka answers to a Fetch for a partition.
ALLOWED = {
    ErrorCode.NONE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


class Play:
    """One sequence of steps, and what has to hold after each."""

    def __init__(self, outside: Outside) -> None:
        self.broker = Broker(outside, sends_to_nearest=True)
        self.outside = outside
        self.claimed: dict[int, int] = {}
        """The largest offset that each follower has said to have in this leadership."""
        self.watermark = 0

    async def step(self, kind: str, given: Any) -> None:
        partition = self.broker.replicas.find_replica(FIRST)
        if kind == "cool down":
            self.outside.files.make_cold()
        elif kind == "assign":
            leader, isr = given
            if partition.is_leader and leader != ME:
                self.claimed = {}
            await self.broker.assign(leader, isr=isr)
        elif kind == "append":
            values = [b"x"] * given
            if partition.is_leader:
                self.broker.append(*values)
            else:
                self.broker.follow_records(
                    *values, epoch=partition.leader_epoch, watermark=self.watermark
                )
        else:
            await self.fetch(**given)
        self.check()

    async def fetch(self, *, lateness: int, **given: Any) -> None:
        replica = given["replica"]
        found = await self.broker.fetch(replica_epoch=broker_epoch(replica) - lateness, **given)
        assert found.error_code in ALLOWED
        positions = self.broker.replicas.find_replica(FIRST).log.positions
        if found.error_code not in {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}:
            assert (found.high_watermark, found.records) == (-1, b"")
            return
        assert found.high_watermark == positions.high_watermark
        if not found.error_code and found.diverging_epoch.epoch < 0:
            # Nothing that was refused counts.
            self.claimed[replica] = max(self.claimed.get(replica, 0), given["offset"])
        records = found.records or b""
        if found.preferred_read_replica >= 0 or found.diverging_epoch.epoch >= 0:
            assert not records
        if replica == CONSUMER and given["partition_max_bytes"] > 1:
            for _, batch in read_batches(memoryview(records)):  # type: ignore[arg-type]
                assert batch.base_offset < positions.high_watermark

    def check(self) -> None:
        partition = self.broker.replicas.find_replica(FIRST)
        positions = partition.log.positions
        positions.check()
        assert positions.high_watermark >= self.watermark
        if positions.high_watermark > self.watermark and partition.leadership is not None:
            for member in partition.leadership.isr - {ME}:
                assert self.claimed.get(member, 0) >= positions.high_watermark
        self.watermark = positions.high_watermark


@settings(max_examples=examples(100), deadline=None)
@given(steps=st.lists(STEPS, min_size=3, max_size=40))
def test_no_request_shows_or_commits_too_much(steps: list[tuple[str, Any]]) -> None:
    """Each answer has a code of Kafka's, and the high watermark only what all in sync have."""

    async def scenario(outside: Outside) -> None:
        play = Play(outside)
        await play.broker.assign()
        for kind, drawn in steps:
            await play.step(kind, drawn)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
