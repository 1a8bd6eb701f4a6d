"""Fetches are answered in time, whatever is appended, forgotten or cut off meanwhile.

Several clients fetch at the same time, with sessions and without, each with one request under way;
a writer appends records of one size. Time is virtual, so an answer comes when it is due.
"""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import RunningBroker
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from tailrace.testing import Outside, Peer, virtual_runtime
from tests.examples import examples
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    batch,
    connect,
    create_topic,
    produce,
    running,
)

TOPIC = "t"
PARTITIONS = 3
RECORD = batch(b"x")
SOON_S = 0.001
"""Virtual time in which a request that is due is answered."""

FETCHES = st.fixed_dictionaries({
    "partitions": st.sets(st.integers(0, PARTITIONS - 1), min_size=1),
    "records_min": st.sampled_from([1, 1, 1, 2, 5]),
    "max_wait_s": st.sampled_from([0.0, 0.017, 0.3, 2.0]),
    "session": st.sampled_from(["go on", "go on", "go on", "anew", "none", "wrong epoch"]),
    "cut_after_s": st.sampled_from([None, None, None, None, 0.011, 0.2]),
    "pause_s": st.sampled_from([0.0, 0.0, 0.013, 0.4]),
})  # fmt: skip
APPENDS = st.tuples(st.sampled_from([0.0, 0.003, 0.1, 0.7]), st.integers(0, PARTITIONS - 1))


@dataclass(slots=True)
class Written:
    """The records of the topic: for each partition the times at which they were appended."""

    at_s: list[list[float]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    def count(self, partition: int, position: int, before_s: float) -> int:
        """Records of a partition from a position on that were there before some time."""
        return sum(at < before_s for at in self.at_s[partition][position:])


@dataclass(slots=True)
class Reader:
    """A consumer that checks each answer, and when it comes."""

    outside: Outside
    broker: RunningBroker
    written: Written
    peer: Peer
    session_id: int = 0
    epoch: int = 0
    known: dict[int, int] = field(default_factory=dict)
    """The partitions of the session, with the offsets that it was sent."""
    positions: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    async def fetch(self, step: dict[str, object]) -> None:
        """One fetch of a plan, and the check of its answer."""
        wanted, max_wait_s = step["partitions"], step["max_wait_s"]
        records_min, cut_after_s, pause_s = (
            step["records_min"], step["cut_after_s"], step["pause_s"]
        )  # fmt: skip
        assert isinstance(wanted, set)
        assert isinstance(max_wait_s, float)
        assert isinstance(records_min, int)
        assert isinstance(pause_s, float)
        await self.outside.pass_time(pause_s)
        if step["session"] == "wrong epoch" and self.session_id:
            self.epoch += 1
        request = self._request(
            wanted,
            bytes_min=records_min * len(RECORD),
            max_wait_ms=int(max_wait_s * 1000),
            session=str(step["session"]),
        )
        began_s = self.outside.loop.time()
        asking = asyncio.ensure_future(
            self.peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)
        )
        if isinstance(cut_after_s, float):
            await self.outside.pass_time(cut_after_s)
            if not asking.done():
                asking.cancel()
                self.peer.socket.close()
                self.peer = connect(self.outside, self.broker)
                self._forget_session()
                return
        else:
            # A minute later than it is due: the test fails with the time, and does not hang.
            await asyncio.wait([asking], timeout=60)
        assert asking.done(), f"no answer within a minute to {request}"
        answer, ended_s = asking.result(), self.outside.loop.time()
        if answer.error_code:
            assert step["session"] == "wrong epoch"
            assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
            self._forget_session()
            return
        is_timed = cut_after_s is None  # Else it came at some time before the cut.
        self._check(
            answer,
            wanted,
            records_min,
            began_s=began_s,
            deadline_s=began_s + max_wait_s if is_timed else began_s,
            ended_s=ended_s if is_timed else began_s,
        )
        if answer.session_id == 0:
            self._forget_session()
        else:
            self.session_id = answer.session_id
            self.epoch += 1

    def _request(
        self, wanted: set[int], *, bytes_min: int, max_wait_ms: int, session: str
    ) -> FetchRequest:
        if session == "anew":
            self.epoch, self.known = 0, {}
        elif session == "none":
            self.epoch, self.known = -1, {}
        elif self.session_id == 0:
            self._forget_session()
        changed = [each for each in sorted(wanted) if self.known.get(each) != self.positions[each]]
        forgotten = tuple(self.known.keys() - wanted)
        self.known = {each: self.positions[each] for each in wanted}
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            min_bytes=bytes_min,
            max_wait_ms=max_wait_ms,
            topics=(_topic({each: self.positions[each] for each in changed}),) if changed else (),
            forgotten_topics_data=(
                (ForgottenTopic(topic=TOPIC, partitions=forgotten),) if forgotten else ()
            ),
        )

    def _check(
        self,
        answer: FetchResponse,
        wanted: set[int],
        records_min: int,
        *,
        began_s: float,
        deadline_s: float,
        ended_s: float,
    ) -> None:
        """The answer came when it was due, with all records that were there."""
        there = {
            each: self.written.count(each, self.positions[each], ended_s - SOON_S)
            for each in wanted
        }
        found = {
            each.partition_index: len(each.records or b"") // len(RECORD)
            for topic in answer.responses
            for each in topic.partitions
        }
        assert ended_s <= deadline_s + SOON_S, "answered after max.wait.ms"
        was_due = sum(there.values()) >= records_min
        assert not was_due or ended_s - began_s <= SOON_S, "enough records were there before"
        for each in wanted:
            assert found.get(each, 0) >= there[each], "records were there, and were left out"
            self.positions[each] += found.get(each, 0)
        is_enough = sum(found.values()) >= records_min
        assert is_enough or ended_s >= deadline_s - SOON_S, "answered too early"

    def _forget_session(self) -> None:
        self.session_id, self.epoch, self.known = 0, 0, {}


def _topic(positions: dict[int, int]) -> FetchTopic:
    return FetchTopic(
        topic=TOPIC,
        partitions=tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in positions.items()
        ),
    )


@given(
    plans=st.lists(st.lists(FETCHES, min_size=1, max_size=8), min_size=1, max_size=3),
    appends=st.lists(APPENDS, max_size=20),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_fetch_is_answered_when_it_is_due(
    plans: list[list[dict[str, object]]], appends: list[tuple[float, int]]
) -> None:
    """It is answered at `max.wait.ms`, or before with enough records, and lacks none."""

    async def main(outside: Outside) -> None:
        async with running(outside) as broker:
            await create_topic(connect(outside, broker), TOPIC, partitions=PARTITIONS)
            written, writer = Written(), connect(outside, broker)

            async def read(plan: list[dict[str, object]]) -> None:
                reader = Reader(outside, broker, written, connect(outside, broker))
                for step in plan:
                    await reader.fetch(step)

            async def write() -> None:
                for pause_s, partition in appends:
                    await outside.pass_time(pause_s)
                    await produce(writer, TOPIC, RECORD, partition=partition)
                    written.at_s[partition].append(outside.loop.time())

            await asyncio.gather(write(), *map(read, plans))

    with virtual_runtime() as outside:
        outside.run(main(outside))
