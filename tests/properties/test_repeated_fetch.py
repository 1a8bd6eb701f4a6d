"""Fetches that are answered without decoding get the answers of the others, byte by byte.

The same requests go to two brokers. To one they come as from a consumer, which repeats its request
with another offset. To the other each has a client id of its own, so that it repeats none.
"""

import errno
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import decode_response
from tailrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.examples import examples
from tests.properties.repeating import TOPICS, Link, compare
from tests.unit.broker.brokers import batch, produce

IDS_SINCE = 13
"""From this version of Fetch on, topics are named by id."""
VERSIONS = range(4, 19)
SETTINGS = {"log.dirs": "a,b", "fetch.max.bytes": "3000"}
RECORDS = 12
"""Records of a topic at the beginning."""

FETCHES = st.fixed_dictionaries({
    "topic": st.sampled_from([0, 0, 0, 0, 1]),
    "version": st.sampled_from([0, 0, 0, 0, 0, 1]),
    "offset": st.integers(-1, RECORDS + 3),
    "bytes_max": st.sampled_from([0, 100, 500, 500, 100_000, -1]),
    "answer_bytes_max": st.sampled_from([50, 700, 100_000, 100_000, 100_000, -1]),
    "bytes_min": st.sampled_from([0, 1, 1, 1, 400]),
    "wait_ms": st.sampled_from([0, 0, 0, 20]),
    "isolation": st.sampled_from([0, 0, 1]),
    "leader_epoch": st.sampled_from([-1, -1, -1, 0, 1]),
    "last_epoch": st.sampled_from([-1, -1, -1, -1, 0, 1]),
    "session": st.sampled_from(["none", "none", "kept", "kept", "kept", "wrong", "ended"]),
    "edit": st.none() | st.none() | st.none() | st.tuples(st.integers(0, 80), st.integers(1, 255)),
    "end": st.sampled_from([b"", b"", b"", b"", b"\0"]),
})  # fmt: skip

SAME = st.builds(
    lambda drawn, offsets: [{**drawn, "offset": offset} for offset in offsets],
    FETCHES,
    st.lists(st.integers(0, RECORDS + 1), min_size=3, max_size=6),
)
"""Fetches that differ only in their offsets."""

STEPS = st.one_of(
    st.tuples(st.just("fetch"), SAME),
    st.tuples(st.just("fetch"), SAME),
    st.tuples(st.just("fetch"), st.lists(FETCHES, min_size=1, max_size=6)),
    st.tuples(st.just("fetch at once"), SAME),
    st.tuples(st.just("fetch from a cold disk"), SAME),
    st.tuples(st.just("produce"), st.integers(0, 1)),
    st.tuples(st.just("create anew"), st.integers(0, 1)),
    st.tuples(st.just("delete records"), st.integers(0, 1)),
    st.tuples(st.just("connect anew"), st.just(0)),
    st.tuples(st.just("wait"), st.just(1)),
)  # fmt: skip


@dataclass(slots=True)
class Client:
    """Sends the requests of one test."""

    link: Link
    versions: tuple[int, int]
    _session: tuple[int, int] = (0, 0)
    """Id of the session, and the epoch of its next request."""

    async def create(self, topic: int) -> None:
        """Make a topic with small segments and frequent index entries, and some records."""
        configs = {"internal.segment.bytes": "1000", "index.interval.bytes": "200"}
        await self.link.create(topic, configs=configs)
        for _ in range(RECORDS // 2):
            await self._produce(topic)

    async def run(self, step: tuple[str, Any]) -> None:
        """Take one step; answers are added to those so far."""
        match step:
            case "fetch", list() as fetches:
                for each in fetches:
                    await self._fetch([each])
            case "fetch at once", list() as fetches:
                await self._fetch([{**each, "session": "none"} for each in fetches])
            case "fetch from a cold disk", list() as fetches:
                for each in fetches:
                    self.link.outside.files.make_cold()
                    await self._fetch([each])
            case "fetch from a disk that fails", list() as fetches:
                with self.link.failing("read", errno.EIO):
                    for each in fetches:
                        await self._fetch([each])
            case "produce", int() as topic:
                await self._produce(topic)
            case "create anew", int() as topic:
                await self.create(topic)
            case "delete records", int() as topic:
                await self.link.delete_records(topic, 5)
            case "connect anew", _:
                self.link.peer = None
            case _, seconds:
                await self.link.outside.pass_time(seconds)

    async def _produce(self, topic: int) -> None:
        await produce(self.link.operator(), TOPICS[topic], batch(b"a" * 90, b"b" * 90))

    async def _fetch(self, fetches: list[dict[str, Any]]) -> None:
        """Send fetches at once, and read the answers until the connection is closed, if it is."""
        peer = self.link.open_peer()
        peer.send_bytes(b"".join([self._frame(each) for each in fetches]))
        for each in fetches:
            try:
                frame = await peer.read_frame()
            except EOFError:
                self.link.note_closed()
                return
            self.link.answers.append(frame)
            if each["session"] != "none" and each["edit"] is None:
                self._note(frame, self.versions[each["version"]])

    def _note(self, frame: bytes, version: int) -> None:
        """Continue the session, or begin another one."""
        answer = decode_response(APIS[ApiKey.FETCH], version, memoryview(frame))
        assert isinstance(answer, FetchResponse)
        is_lost = answer.error_code != ErrorCode.NONE or not answer.session_id
        self._session = (0, 0) if is_lost else (answer.session_id, self._session[1] + 1)

    def _frame(self, drawn: dict[str, Any]) -> bytes:
        version = self.versions[drawn["version"]]
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=drawn["leader_epoch"],
            fetch_offset=drawn["offset"],
            last_fetched_epoch=drawn["last_epoch"],
            partition_max_bytes=drawn["bytes_max"],
        )
        topic = (
            FetchTopic(topic_id=self.link.ids[drawn["topic"]], partitions=(wanted,))
            if version >= IDS_SINCE
            else FetchTopic(topic=TOPICS[drawn["topic"]], partitions=(wanted,))
        )
        session_id, epoch = self._session
        match drawn["session"]:
            case "none":
                session_id, epoch = 0, -1
            case "wrong":
                epoch += 7
            case "ended":
                epoch = -1
        asked = FetchRequest(
            max_wait_ms=drawn["wait_ms"],
            min_bytes=drawn["bytes_min"],
            max_bytes=drawn["answer_bytes_max"],
            isolation_level=drawn["isolation"],
            session_id=session_id,
            session_epoch=epoch,
            topics=(topic,),
        )
        return self.link.frame(ApiKey.FETCH, asked, version, end=drawn["end"], edit=drawn["edit"])


def check(steps: list[tuple[str, Any]], versions: tuple[int, int]) -> None:
    """Compare a broker on which fetches repeat with one on which they do not."""

    async def play(link: Link) -> object:
        client = Client(link, versions)
        for topic in range(len(TOPICS)):
            await client.create(topic)
        for step in steps:
            await client.run(step)
        return link.broker.statistics().fetch_sessions

    compare(play, SETTINGS)


@settings(max_examples=examples(60))
@given(
    st.lists(STEPS, min_size=2, max_size=8),
    st.tuples(st.sampled_from(VERSIONS), st.sampled_from(VERSIONS)),
)
def test_repeated_fetches_are_answered_as_others_are(
    steps: list[tuple[str, Any]], versions: tuple[int, int]
) -> None:
    """Every byte of the answers is the same."""
    check(steps, versions)


def fetches(count: int, **changes: object) -> list[dict[str, Any]]:
    """Fetches of the same partition, each from the next record on."""
    usual = {
        "topic": 0, "version": 0, "bytes_max": 500, "answer_bytes_max": 100_000, "bytes_min": 1,
        "wait_ms": 0, "isolation": 0, "leader_epoch": 0, "last_epoch": -1, "session": "none",
        "edit": None, "end": b"",
    }  # fmt: skip
    return [{**usual, "offset": each, **changes} for each in range(count)]


MEANWHILE: list[tuple[str, Any]] = [
    ("wait", 1),
    ("produce", 0),
    ("create anew", 0),
    ("delete records", 0),
    ("connect anew", 0),
    ("fetch", fetches(RECORDS + 3)),
    ("fetch", fetches(4, session="wrong")),
    ("fetch", fetches(4, session="ended")),
    ("fetch", fetches(4, topic=1, session="kept")),
    ("fetch at once", fetches(6)),
    ("fetch from a cold disk", fetches(3)),
    ("fetch from a disk that fails", fetches(3)),
]
"""Steps between two repetitions."""


@given(st.sampled_from(MEANWHILE), st.sampled_from(["none", "kept"]), st.sampled_from(VERSIONS))
def test_a_fetch_after_a_change_is_answered_as_others_are(
    step: tuple[str, Any], session: str, version: int
) -> None:
    """Whatever changes between two repetitions, the second is answered by what is true then."""
    own = fetches(5, session=session)
    check([("fetch", own), step, ("fetch", own)], (version, version))
