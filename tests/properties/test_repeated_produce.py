"""Requests that are answered without decoding get the answers, and leave the logs, of the others.

The same requests go to two brokers. To one they come as from a producer, which repeats its request
with other records. To the other each has a client id of its own, so that it repeats none.
"""

import errno
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder
from tailrace.records.layout import ATTRIBUTES_POSITION, CRC, CRC_POSITION
from tailrace.testing import virtual_runtime
from tests.examples import examples
from tests.properties.repeating import TOPICS, Link, compare
from tests.unit.broker.brokers import running

NOW = 1_700_000_000_000
IDS_SINCE = 13
"""From this version of Produce on, topics are named by id."""

REQUESTS = st.fixed_dictionaries({
    "topic": st.sampled_from([0, 0, 0, 1]),
    "version": st.sampled_from([0, 0, 0, 0, 0, 1]),
    "acks": st.sampled_from([1, 1, 1, 1, -1, 0]),
    "values": st.lists(st.sampled_from([1, 10, 200]), min_size=1, max_size=3),
    "has_keys": st.sampled_from([True, True, True, False]),
    "timestamps": st.lists(
        st.sampled_from([NOW, NOW, NOW, NOW + 5, NOW + 100_000_000, -1]), min_size=3, max_size=3
    ),
    "producer": st.sampled_from([-1, -1, 7, 7, 8]),
    "step": st.sampled_from([0, 0, 0, 0, 0, 0, -1, 1]),
    "edit": st.none()
    | st.none()
    | st.none()
    | st.tuples(st.integers(0, 75), st.integers(1, 255), st.booleans()),
    "end": st.sampled_from([b"", b"", b"", b"", b"", b"\0"]),
})  # fmt: skip

STEPS = st.one_of(
    st.tuples(st.just("produce"), st.lists(REQUESTS, min_size=1, max_size=8)),
    st.tuples(st.just("produce"), st.lists(REQUESTS, min_size=1, max_size=8)),
    st.tuples(st.just("produce"), st.lists(REQUESTS, min_size=1, max_size=8)),
    st.tuples(st.just("create anew"), st.integers(0, 1)),
    st.tuples(st.just("delete records"), st.integers(0, 1)),
    st.tuples(
        st.just("configure"),
        st.sampled_from([
            ("max.message.bytes", "150"), ("max.message.bytes", "1000"),
            ("cleanup.policy", "compact"), ("cleanup.policy", "delete"),
            ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"),
            ("compression.type", "gzip"), ("compression.type", "producer"),
            ("flush.messages", "1"), ("flush.messages", "9223372036854775807"),
        ]),
    ),
    st.tuples(st.just("produce to a full disk"), st.lists(REQUESTS, min_size=1, max_size=8)),
    st.tuples(st.just("connect anew"), st.just(1)),
    st.tuples(st.just("wait"), st.just(1)),
)  # fmt: skip


@dataclass(slots=True)
class Client:
    """Sends the requests of one test."""

    link: Link
    versions: tuple[int, int]
    _sequences: dict[tuple[int, int], int] = field(default_factory=dict)

    async def create(self, topic: int) -> None:
        """Make a topic with small segments and frequent index entries, and its log."""
        configs = {"segment.index.bytes": "120", "index.interval.bytes": "400"}
        configs["internal.segment.bytes"] = "4000"
        await self.link.create(topic, configs=configs)

    async def run(self, step: tuple[str, Any]) -> None:
        """Take one step; answers are added to those so far."""
        match step:
            case "produce", list() as requests:
                await self._produce(requests)
            case "create anew", int() as topic:
                await self.create(topic)
            case "delete records", int() as topic:
                await self.link.delete_records(topic, -1)
            case "configure", (str() as name, str() as value):
                await self.link.configure(TOPICS, name, value)
            case "produce to a full disk", list() as requests:
                with self.link.failing("write", errno.ENOSPC):
                    await self._produce(requests)
            case "connect anew", _:
                self.link.peer = None
            case _:
                await self.link.outside.pass_time(1)

    async def _produce(self, requests: list[dict[str, Any]]) -> None:
        """Send requests at once, and read the answers until the connection is closed, if it is."""
        peer = self.link.open_peer()
        peer.send_bytes(b"".join([self._frame(each) for each in requests]))
        for each in requests:
            if each["acks"] == 0:
                continue
            try:
                self.link.answers.append(await peer.read_frame())
            except EOFError:
                self.link.note_closed()
                return
        await self.link.outside.pass_time(0.01)
        if peer.socket.is_peer_gone:
            self.link.note_closed("closed after the last answer")

    def _frame(self, drawn: dict[str, Any]) -> bytes:
        version = self.versions[drawn["version"]]
        data = PartitionProduceData(index=0, records=self._batch(drawn))
        name = TOPICS[drawn["topic"]]
        topic = (
            TopicProduceData(topic_id=self.link.ids[drawn["topic"]], partition_data=(data,))
            if version >= IDS_SINCE
            else TopicProduceData(name=name, partition_data=(data,))
        )
        asked = ProduceRequest(acks=drawn["acks"], timeout_ms=1000, topic_data=(topic,))
        return self.link.frame(ApiKey.PRODUCE, asked, version, end=drawn["end"])

    def _batch(self, drawn: dict[str, Any]) -> bytes:
        producer, place = drawn["producer"], (drawn["topic"], drawn["producer"])
        sequence = -1
        if producer >= 0:
            sequence = max(self._sequences.get(place, 0) + drawn["step"], 0)
            if not drawn["step"]:
                self._sequences[place] = sequence + len(drawn["values"])
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence
        )
        for size, timestamp in zip(drawn["values"], drawn["timestamps"], strict=False):
            builder.append(b"k" if drawn["has_keys"] else None, bytes(size), timestamp=timestamp)
        batch = bytearray(builder.build())
        if drawn["edit"] is not None:
            position, change, is_sealed = drawn["edit"]
            if position < len(batch):
                batch[position] ^= change
                if is_sealed:
                    CRC.pack_into(batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
        return bytes(batch)


def check(steps: list[tuple[str, Any]], versions: tuple[int, int]) -> None:
    """Compare a broker on which requests repeat with one on which they do not."""

    async def play(link: Link) -> None:
        client = Client(link, versions)
        for topic in range(len(TOPICS)):
            await client.create(topic)
        for step in steps:
            await client.run(step)

    compare(play)


@settings(max_examples=examples(60))
@given(st.lists(STEPS, min_size=2, max_size=8), st.tuples(st.integers(3, 13), st.integers(3, 13)))
def test_repeated_requests_are_answered_as_others_are(
    steps: list[tuple[str, Any]], versions: tuple[int, int]
) -> None:
    """Every byte of the answers is the same, and every byte of the logs."""
    check(steps, versions)


def requests(count: int, **changes: object) -> list[dict[str, Any]]:
    """Requests with one record of the same producer and for the same topic."""
    usual = {
        "topic": 0, "version": 0, "acks": 1, "values": [10], "has_keys": True,
        "timestamps": [NOW] * 3, "producer": 7, "step": 0, "edit": None, "end": b"",
    }  # fmt: skip
    return [{**usual, **changes} for _ in range(count)]


@given(st.integers(3, 13), st.sampled_from([0, 1, -1]), st.sampled_from([-1, 7]))
def test_repeated_requests_are_written_together(version: int, acks: int, producer: int) -> None:
    """When five come at once, the first is appended, and then the others with one write."""
    with virtual_runtime() as outside:

        async def scenario() -> int:
            async with running(outside) as broker:
                link = Link(outside=outside, broker=broker, repeats=True, answers=[])
                client = Client(link, (version, version))
                await client.create(0)
                count = len(outside.files.operations)
                await client.run(("produce", requests(5, acks=acks, producer=producer)))
                done = outside.files.operations[count:]
                return sum(name == "write" and path.endswith(".log") for name, path in done)

        assert outside.run(scenario()) == 2


MEANWHILE: list[tuple[str, Any]] = [
    ("wait", 1),
    ("connect anew", 1),
    ("create anew", 0),
    ("delete records", 0),
    ("configure", ("max.message.bytes", "150")),
    ("configure", ("cleanup.policy", "compact")),
    ("configure", ("message.timestamp.type", "LogAppendTime")),
    ("configure", ("compression.type", "gzip")),
    ("configure", ("flush.messages", "1")),
    ("produce to a full disk", requests(3)),
]
"""Steps between two repetitions."""

UNUSUAL: list[dict[str, Any]] = [
    {},
    {"values": [200]},
    {"values": [1, 1], "timestamps": [NOW, NOW - 5, NOW]},
    {"has_keys": False},
    {"timestamps": [NOW + 100_000_000] * 3},
    {"timestamps": [-1] * 3},
    {"producer": 8},
    {"step": -1},
    {"step": 1},
    {"end": b"\0"},
    {"edit": (3, 1, False)},
    {"edit": (16, 1, False)},
    {"edit": (22, 8, True)},
    {"edit": (40, 1, True)},
    {"edit": (64, 2, True)},
    {"edit": (65, 1, True)},
]
"""Changes of a request that take it from the short way."""


@given(st.sampled_from(MEANWHILE), st.sampled_from(UNUSUAL))
def test_an_unusual_request_after_a_change_is_answered_as_others_are(
    step: tuple[str, Any], change: dict[str, Any]
) -> None:
    """Requests are repeated, something happens, and then comes one that needs a closer look."""
    steps = [
        ("produce", requests(3)),
        step,
        ("produce", requests(2) + requests(1, **change) + requests(2)),
        ("produce", requests(3, acks=0) + requests(30)),
    ]
    check(steps, (9, 9))


def test_what_follows_a_batch_that_is_sent_again_does_not_get_its_answer() -> None:
    """A producer that has lost its connection begins the next one with what it has sent before."""
    steps = [
        ("produce", requests(1)),
        ("connect anew", 1),
        ("produce", requests(1, step=-1) + requests(2)),
    ]
    check(steps, (9, 9))
