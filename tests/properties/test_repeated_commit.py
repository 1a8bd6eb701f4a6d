"""Commits that are answered without decoding get the answers, and leave the logs, of the others.

The same requests go to two brokers. To one they come as from a consumer, which repeats its commit
with other offsets. To the other each has a client id of its own, so that it repeats none.
"""

import errno
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.examples import examples
from tests.properties.repeating import TOPICS, Link, compare

IDS_SINCE = 10
"""From this version of OffsetCommit on, topics are named by id."""
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "4000",
    "offset.metadata.max.bytes": "20",
    "group.initial.rebalance.delay.ms": "0",
}

COMMITS = st.fixed_dictionaries({
    "group": st.sampled_from([0, 0, 0, 0, 1]),
    "version": st.sampled_from([0, 0, 0, 0, 0, 1]),
    "topics": st.sampled_from([(0,), (0,), (0, 1)]),
    "partitions": st.sampled_from([(0,), (0,), (0, 1), (0, 7)]),
    "offset": st.integers(-1, 2**63 - 1),
    "epoch": st.integers(-1, 2**31 - 1),
    "metadata": st.sampled_from(["", "", "", None, "m", "long" * 6]),
    "retention": st.sampled_from([-1, -1, -1, 1000]),
    "is_member": st.booleans(),
    "edit": st.none() | st.none() | st.none() | st.tuples(st.integers(0, 70), st.integers(1, 255)),
    "end": st.sampled_from([b"", b"", b"", b"", b"\0"]),
})  # fmt: skip

SAME = st.builds(
    lambda drawn, offsets: [{**drawn, "offset": offset} for offset in offsets],
    COMMITS,
    st.lists(st.integers(-1, 2**63 - 1), min_size=3, max_size=6),
)
"""Commits that differ only in their offsets."""

STEPS = st.one_of(
    st.tuples(st.just("commit"), SAME),
    st.tuples(st.just("commit"), SAME),
    st.tuples(st.just("commit"), st.lists(COMMITS, min_size=1, max_size=6)),
    st.tuples(st.just("commit to a full disk"), SAME),
    st.tuples(st.just("create anew"), st.integers(0, 1)),
    st.tuples(st.just("join"), st.just(0)),
    st.tuples(
        st.just("configure"),
        st.sampled_from([
            ("max.message.bytes", "150"), ("max.message.bytes", "100000"),
            ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.type", "CreateTime"),
            ("compression.type", "gzip"), ("compression.type", "producer"),
            ("flush.messages", "1"), ("flush.messages", "9223372036854775807"),
        ]),
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 20])),
)  # fmt: skip


@dataclass(slots=True)
class Client:
    """Sends the requests of one test."""

    link: Link
    versions: tuple[int, int]
    _member: tuple[str, int] = ("", -1)

    async def start(self) -> None:
        """Make the topics, and that of the groups."""
        for topic in range(len(TOPICS)):
            await self.link.create(topic, partition_count=2)
        peer = self.link.operator()
        asked = FindCoordinatorRequest(key="group-0")
        await peer.ask(ApiKey.FIND_COORDINATOR, asked, FindCoordinatorResponse, version=3)
        await self.link.outside.pass_time(1)

    async def run(self, step: tuple[str, Any]) -> None:
        """Take one step; answers are added to those so far."""
        match step:
            case "commit", list() as commits:
                await self._commit(commits)
            case "commit to a full disk", list() as commits:
                with self.link.failing("write", errno.ENOSPC):
                    await self._commit(commits)
            case "create anew", int() as topic:
                await self.link.create(topic, partition_count=2)
            case "join", _:
                await self._join()
            case "configure", (str() as name, str() as value):
                await self.link.configure([OFFSETS_TOPIC], name, value)
            case _, seconds:
                await self.link.outside.pass_time(seconds)

    async def fetch(self) -> None:
        """Add what the groups have committed to the answers."""
        asked = OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(group_id=f"group-{each}") for each in range(2))
        )
        peer = self.link.operator()
        self.link.answers.append(
            await peer.ask(ApiKey.OFFSET_FETCH, asked, OffsetFetchResponse, version=9)
        )

    async def _join(self) -> None:
        """Make a member of the first group; its session lasts 10 seconds."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="group-0", session_timeout_ms=10_000, rebalance_timeout_ms=1_000,
            member_id="", protocol_type="consumer", protocols=(protocol,),
        )  # fmt: skip
        peer = self.link.operator()
        joined = await peer.ask(ApiKey.JOIN_GROUP, join, JoinGroupResponse, version=3)
        self._member = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id="group-0", generation_id=joined.generation_id, member_id=joined.member_id
        )
        await peer.ask(ApiKey.SYNC_GROUP, sync, SyncGroupResponse, version=3)
        self.link.answers.append(joined)

    async def _commit(self, commits: list[dict[str, Any]]) -> None:
        """Send commits at once, and read the answers until the connection is closed, if it is."""
        peer = self.link.open_peer()
        peer.send_bytes(b"".join([self._frame(each) for each in commits]))
        await self.link.outside.pass_time(0.01)
        for _ in commits:
            if peer.socket.is_peer_gone:
                self.link.note_closed()
                return
            self.link.answers.append(await peer.read_frame())

    def _frame(self, drawn: dict[str, Any]) -> bytes:
        version = self.versions[drawn["version"]]
        partitions = tuple(
            OffsetCommitRequestPartition(
                partition_index=each,
                committed_offset=drawn["offset"],
                committed_leader_epoch=drawn["epoch"],
                committed_metadata=drawn["metadata"],
            )
            for each in drawn["partitions"]
        )
        topics = tuple(
            OffsetCommitRequestTopic(topic_id=self.link.ids[each], partitions=partitions)
            if version >= IDS_SINCE
            else OffsetCommitRequestTopic(name=TOPICS[each], partitions=partitions)
            for each in drawn["topics"]
        )
        member_id, generation = self._member if drawn["is_member"] else ("", -1)
        asked = OffsetCommitRequest(
            group_id=f"group-{drawn['group']}",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=drawn["retention"],
            topics=topics,
        )
        return self.link.frame(
            ApiKey.OFFSET_COMMIT, asked, version, end=drawn["end"], edit=drawn["edit"]
        )


def check(steps: list[tuple[str, Any]], versions: tuple[int, int]) -> None:
    """Compare a broker on which commits repeat with one on which they do not."""

    async def play(link: Link) -> None:
        client = Client(link, versions)
        await client.start()
        for step in steps:
            await client.run(step)
        await client.fetch()

    compare(play, SETTINGS)


@settings(max_examples=examples(30))
@given(st.lists(STEPS, min_size=2, max_size=8), st.tuples(st.integers(2, 10), st.integers(2, 10)))
def test_repeated_commits_are_answered_as_others_are(
    steps: list[tuple[str, Any]], versions: tuple[int, int]
) -> None:
    """Every byte of the answers is the same, and every byte of the logs."""
    check(steps, versions)


def commits(count: int, **changes: object) -> list[dict[str, Any]]:
    """Commits of the same group for the same partitions, of other offsets."""
    usual = {
        "group": 0, "version": 0, "topics": (0,), "partitions": (0, 1), "epoch": 3,
        "metadata": "m", "retention": -1, "is_member": False, "edit": None, "end": b"",
    }  # fmt: skip
    return [{**usual, "offset": each, **changes} for each in range(count)]


MEANWHILE: list[tuple[str, Any]] = [
    ("wait", 1),
    ("create anew", 0),
    ("join", 0),
    ("configure", ("max.message.bytes", "150")),
    ("configure", ("message.timestamp.type", "LogAppendTime")),
    ("configure", ("compression.type", "gzip")),
    ("configure", ("flush.messages", "1")),
    ("commit to a full disk", commits(3)),
]
"""Steps between two repetitions."""


@given(st.sampled_from(MEANWHILE), st.integers(2, 10))
def test_a_commit_after_a_change_is_answered_as_others_are(
    step: tuple[str, Any], version: int
) -> None:
    """Whatever changes between two repetitions, the second is answered by what is true then."""
    steps = [("commit", commits(4)), step, ("commit", commits(4))]
    check(steps, (version, version))


def test_the_member_that_repeats_a_commit_is_refused_when_its_session_has_ended() -> None:
    """The group decides on each repetition: one of a member that is gone is an error."""
    own = commits(3, is_member=True)
    check([("join", 0), ("commit", own), ("wait", 20), ("commit", own)], (7, 7))
