"""Commits that are answered without decoding get the answers, and leave the logs, of the others.

The same requests go to two brokers. To one they come as from a consumer, which repeats its commit
with other offsets. To the other each has a client id of its own, so that it repeats none.
"""

import errno
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.broker import RunningBroker
from tailrace.model import OFFSETS_TOPIC
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
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
from tailrace.testing import DiskFault, Outside, Peer, virtual_runtime
from tests.examples import examples
from tests.unit.broker.brokers import connect, running

TOPICS = ("first", "second")
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
    """Sends the requests to one broker, and keeps the answers."""

    outside: Outside
    broker: RunningBroker
    repeats: bool
    versions: tuple[int, int]
    answers: list[object] = field(default_factory=list)
    _peer: Peer | None = None
    _ids: dict[int, UUID] = field(default_factory=dict)
    _sent: int = 0
    _member: tuple[str, int] = ("", -1)

    async def start(self) -> None:
        """Make the topics, and that of the groups."""
        for topic in range(len(TOPICS)):
            await self._create(topic)
        peer = connect(self.outside, self.broker)
        asked = FindCoordinatorRequest(key="group-0")
        await peer.ask(ApiKey.FIND_COORDINATOR, asked, FindCoordinatorResponse, version=3)
        await self.outside.pass_time(1)

    async def run(self, step: tuple[str, Any]) -> None:
        """Take one step; answers are added to those so far."""
        match step:
            case "commit", list() as commits:
                await self._commit(commits)
            case "commit to a full disk", list() as commits:
                full = DiskFault(operation="write", path_part=".log", error=errno.ENOSPC)
                self.outside.files.faults.append(full)
                await self._commit(commits)
                self.outside.files.faults.remove(full)
            case "create anew", int() as topic:
                gone = DeleteTopicsRequest(
                    topics=(DeleteTopicState(name=TOPICS[topic]),), timeout_ms=1000
                )
                peer = connect(self.outside, self.broker)
                await peer.ask(ApiKey.DELETE_TOPICS, gone, DeleteTopicsResponse)
                await self._create(topic)
            case "join", _:
                await self._join()
            case "configure", (str() as name, str() as value):
                config = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
                change = IncrementalAlterConfigsResource(
                    resource_type=2, resource_name=OFFSETS_TOPIC, configs=(config,)
                )
                peer = connect(self.outside, self.broker)
                await peer.ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    IncrementalAlterConfigsRequest(resources=(change,)),
                    IncrementalAlterConfigsResponse,
                )
            case _, seconds:
                await self.outside.pass_time(seconds)

    async def fetch(self) -> None:
        """Add what the groups have committed to the answers."""
        asked = OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(group_id=f"group-{each}") for each in range(2))
        )
        peer = connect(self.outside, self.broker)
        self.answers.append(
            await peer.ask(ApiKey.OFFSET_FETCH, asked, OffsetFetchResponse, version=9)
        )

    async def _create(self, topic: int) -> None:
        wanted = CreatableTopic(name=TOPICS[topic], num_partitions=2, replication_factor=1)
        peer = connect(self.outside, self.broker)
        asked = CreateTopicsRequest(topics=(wanted,))
        answer = await peer.ask(ApiKey.CREATE_TOPICS, asked, CreateTopicsResponse)
        self._ids[topic] = answer.topics[0].topic_id

    async def _join(self) -> None:
        """Make a member of the first group; its session lasts 10 seconds."""
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="group-0", session_timeout_ms=10_000, rebalance_timeout_ms=1_000,
            member_id="", protocol_type="consumer", protocols=(protocol,),
        )  # fmt: skip
        peer = connect(self.outside, self.broker)
        joined = await peer.ask(ApiKey.JOIN_GROUP, join, JoinGroupResponse, version=3)
        self._member = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id="group-0", generation_id=joined.generation_id, member_id=joined.member_id
        )
        await peer.ask(ApiKey.SYNC_GROUP, sync, SyncGroupResponse, version=3)
        self.answers.append(joined)

    async def _commit(self, commits: list[dict[str, Any]]) -> None:
        """Send commits at once, and read the answers until the connection is closed, if it is."""
        peer = self._peer or connect(self.outside, self.broker)
        self._peer = peer
        peer.send_bytes(b"".join([self._frame(each) for each in commits]))
        await self.outside.pass_time(0.01)
        for _ in commits:
            if peer.socket.is_peer_gone:
                self._peer = None
                self.answers.append("closed")
                return
            self.answers.append(await peer.read_frame())

    def _frame(self, drawn: dict[str, Any]) -> bytes:
        self._sent += 1
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
            OffsetCommitRequestTopic(topic_id=self._ids[each], partitions=partitions)
            if version >= IDS_SINCE
            else OffsetCommitRequestTopic(name=TOPICS[each], partitions=partitions)
            for each in drawn["topics"]
        )
        member_id, generation = self._member if drawn["is_member"] else ("", -1)
        frame = encode_request(
            APIS[ApiKey.OFFSET_COMMIT],
            OffsetCommitRequest(
                group_id=f"group-{drawn['group']}",
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                retention_time_ms=drawn["retention"],
                topics=topics,
            ),
            version=version,
            correlation_id=self._sent,
            client_id=f"client-{0 if self.repeats else self._sent:09}",
        )
        body = bytearray(frame[4:] + drawn["end"])
        if drawn["edit"] is not None:
            position, change = drawn["edit"]
            # Not the client id, by which a repetition is known, nor what comes before it.
            position += 10 + len("client-000000000")
            if position < len(body):
                body[position] ^= change
        return len(body).to_bytes(4, "big") + body


def outcome(
    steps: list[tuple[str, Any]], versions: tuple[int, int], *, repeats: bool
) -> tuple[list[object], object]:
    """The answers, what is committed, and all that is on the disk in the end."""
    found: list[object] = []

    async def scenario(outside: Outside) -> None:
        async with running(outside, SETTINGS) as broker:
            client = Client(outside, broker, repeats=repeats, versions=versions, answers=found)
            await client.start()
            for step in steps:
                await client.run(step)
            await client.fetch()

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
        return found, outside.files.state()


def check(steps: list[tuple[str, Any]], versions: tuple[int, int]) -> None:
    """Compare a broker on which commits repeat with one on which they do not."""
    answers, disk = outcome(steps, versions, repeats=True)
    answers_due, disk_due = outcome(steps, versions, repeats=False)
    assert answers == answers_due
    assert disk == disk_due


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


@pytest.mark.parametrize("version", range(2, 11))
@pytest.mark.parametrize(
    "step",
    [
        ("wait", 1),
        ("create anew", 0),
        ("join", 0),
        ("configure", ("max.message.bytes", "150")),
        ("configure", ("message.timestamp.type", "LogAppendTime")),
        ("configure", ("compression.type", "gzip")),
        ("configure", ("flush.messages", "1")),
        ("commit to a full disk", commits(3)),
    ],
)
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
