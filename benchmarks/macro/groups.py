"""Groups: how long a rebalance of many members takes, many groups that commit, and recovery.

Members are raw sockets in this process; the broker's part is most of the time.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from socket import socket
from typing import TypeVar

from benchmarks.macro.brokers import ONE_SEGMENT, serving
from benchmarks.macro.load import connected
from benchmarks.macro.requester import Job, run_job
from benchmarks.measure import Bench, Figure, interleave
from tailrace.client import BrokerAddress
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import SIZE_BYTES, decode_response, encode_request
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

M = TypeVar("M", bound=Message)

TOPIC = "groups"
MEMBERS = 200
GROUPS = 10_000
OFFSETS = 1_000_000
OFFSETS_PER_REQUEST = 500
WAIT_SECONDS = 120
DELAY_MS = 500
"""`group.initial.rebalance.delay.ms`, which is part of the time of a rebalance."""
ONE_PARTITION = {**ONE_SEGMENT, "offsets.topic.num.partitions": "1"}
"""All groups have the same coordinator."""
VERSIONS = {
    ApiKey.OFFSET_COMMIT: 7, ApiKey.OFFSET_FETCH: 5, ApiKey.JOIN_GROUP: 3, ApiKey.SYNC_GROUP: 3,
    ApiKey.FIND_COORDINATOR: 2,
}  # fmt: skip
"""By topic name, and JoinGroup without the second request that asks for a member id."""


def commit_frame(group: str, topic: str, partitions: range = range(1)) -> bytes:
    """A commit of one offset for each partition, by a client that is no member."""
    wanted = tuple(
        OffsetCommitRequestPartition(
            partition_index=each, committed_offset=1, committed_metadata=""
        )
        for each in partitions
    )
    request = OffsetCommitRequest(
        group_id=group, topics=(OffsetCommitRequestTopic(name=topic, partitions=wanted),)
    )
    return _frame(ApiKey.OFFSET_COMMIT, request)


def wait_for_coordinator(address: BrokerAddress, group: str) -> None:
    """Return when the group has a coordinator that has loaded it.

    Raises:
        TimeoutError: it has none.
    """
    asked = OffsetFetchRequest(
        group_id=group, topics=(OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,)),)
    )
    deadline = time.monotonic() + WAIT_SECONDS
    with connected(address) as channel:
        found = FindCoordinatorRequest(key=group)
        while time.monotonic() < deadline:
            channel.sendall(_frame(ApiKey.FIND_COORDINATOR, found))
            _received(channel)
            channel.sendall(_frame(ApiKey.OFFSET_FETCH, asked))
            if not _decoded(ApiKey.OFFSET_FETCH, channel, OffsetFetchResponse).error_code:
                return
            time.sleep(0.01)
    raise TimeoutError(f"group {group} has no coordinator after {WAIT_SECONDS} s")


def measure_groups(bench: Bench) -> list[Figure]:
    """A rebalance, commits of many groups, and the recovery of their coordinator."""
    members = bench.scaled(MEMBERS, quick=5)
    groups = bench.scaled(GROUPS, quick=50)
    settings = {"group.initial.rebalance.delay.ms": str(DELAY_MS)}
    names = count()
    with serving(bench.directory / "data", settings=settings) as broker:
        broker.create_topic(TOPIC)
        wait_for_coordinator(broker.address, "group")
        bench.say(f"groups: {members} members rebalance")
        found = interleave(
            bench,
            {"ours": lambda: rebalance_seconds(broker.address, f"group-{next(names)}", members)},
        )
        bench.say(f"groups: {groups} groups commit")
        host, port = broker.address
        frames = tuple(commit_frame(f"many-{each:06}", TOPIC).hex() for each in range(groups))
        many = Job(
            host=host,
            port=port,
            process_id=broker.process_id,
            frames=frames,
            count=groups,
            at_once=16,
        )
        one = replace(many, frames=frames[:1])
        committed = interleave(
            bench, {"many": partial(run_job, many), "one": partial(run_job, one)}
        )
    limit = Figure(
        name=f"rebalance of {members} members",
        unit="s",
        ours=tuple(found["ours"]),
        peer_name="initial delay",
        peer=(DELAY_MS / 1000,),
    )
    commits = Figure(
        name=f"commit of {groups} groups, 16 at once, CPU",
        unit="us",
        ours=tuple(each.cpu_us for each in committed["many"]),
        peer_name="one group",
        peer=tuple(each.cpu_us for each in committed["one"]),
    )
    return [limit, commits, *_measure_recovery(bench)]


def _measure_recovery(bench: Bench) -> list[Figure]:
    """Seconds from the start of a broker until a group is served whose partition has many offsets.

    The log has the same keys again and again, as before compaction, or each once, as after it.
    """
    offsets = bench.scaled(OFFSETS, quick=2_000)
    requests = offsets // OFFSETS_PER_REQUEST
    keys = {
        f"of {OFFSETS_PER_REQUEST} keys": ["large"],
        "of as many keys": ["large", *(f"large-{each:06}" for each in range(requests - 1))],
    }
    empty = bench.directory / "empty"
    with serving(empty, settings=ONE_PARTITION) as broker:
        wait_for_coordinator(broker.address, "large")
        broker.stop()
    figures = []
    for name, groups in keys.items():
        data = bench.directory / f"recovered-{len(groups)}"
        bench.say(f"groups: recovery of {offsets} offsets {name}")
        _store_offsets(data, groups, count=requests)
        found = interleave(
            bench,
            {"ours": partial(_seconds_to_load, data), "peer": partial(_seconds_to_load, empty)},
        )
        figures.append(
            Figure(
                name=f"recovery of a coordinator from {offsets} offset records {name}",
                unit="s",
                ours=tuple(found["ours"]),
                peer_name="no record",
                peer=tuple(found["peer"]),
            )
        )
    return figures


def _store_offsets(data: Path, groups: list[str], *, count: int) -> None:
    """Fill a directory by `count` commits of these groups in turn, all in one partition."""
    with serving(data, settings=ONE_PARTITION) as broker:
        broker.create_topic(TOPIC, partition_count=OFFSETS_PER_REQUEST)
        wait_for_coordinator(broker.address, "large")
        host, port = broker.address
        partitions = range(OFFSETS_PER_REQUEST)
        run_job(
            Job(
                host=host,
                port=port,
                process_id=broker.process_id,
                frames=tuple(commit_frame(each, TOPIC, partitions).hex() for each in groups),
                count=max(1, count - len(groups)),  # Each frame is sent once before the job.
            )
        )
        broker.stop()


def _seconds_to_load(data: Path) -> float:
    with serving(data) as broker:
        started = time.perf_counter()
        wait_for_coordinator(broker.address, "large")
        return broker.ready_seconds + time.perf_counter() - started


def rebalance_seconds(address: BrokerAddress, group: str, members: int) -> float:
    """Seconds from the first JoinGroup of a new group until every member has its assignment."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(20))
    join = _frame(
        ApiKey.JOIN_GROUP,
        JoinGroupRequest(
            group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id="",
            protocol_type="consumer", protocols=(protocol,),
        ),
    )  # fmt: skip
    with ExitStack() as connections:
        channels = [connections.enter_context(connected(address)) for _ in range(members)]
        started = time.perf_counter()
        for channel in channels:
            channel.sendall(join)
        for channel, frame in list(_syncs(channels, group)):
            channel.sendall(frame)
        for channel in channels:
            synced = _decoded(ApiKey.SYNC_GROUP, channel, SyncGroupResponse)
            assert synced.error_code == 0, synced
        return time.perf_counter() - started


def _syncs(channels: list[socket], group: str) -> Iterator[tuple[socket, bytes]]:
    """The SyncGroup request of each member, as its JoinGroup is answered."""
    for channel in channels:
        joined = _decoded(ApiKey.JOIN_GROUP, channel, JoinGroupResponse)
        assert joined.error_code == 0, joined
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=bytes(20))
                for each in joined.members
            ),
        )
        yield channel, _frame(ApiKey.SYNC_GROUP, request)


def require_committed(answer: bytes) -> None:
    """Check that a commit was taken."""
    api = APIS[ApiKey.OFFSET_COMMIT]
    found = decode_response(api, VERSIONS[api.key], memoryview(answer)[SIZE_BYTES:])
    assert isinstance(found, OffsetCommitResponse)
    assert found.topics[0].partitions[0].error_code == 0, found


def _frame(key: ApiKey, request: Message) -> bytes:
    return encode_request(
        APIS[key], request, version=VERSIONS[key], correlation_id=0, client_id="benchmark"
    )


def _received(channel: socket) -> memoryview:
    size = int.from_bytes(_exactly(channel, SIZE_BYTES))
    return memoryview(_exactly(channel, size))


def _exactly(channel: socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        received = channel.recv_into(view)
        if not received:
            raise ConnectionError("the broker closed the connection")
        view = view[received:]
    return bytes(data)


def _decoded(key: ApiKey, channel: socket, kind: type[M]) -> M:
    found = decode_response(APIS[key], VERSIONS[key], _received(channel))
    assert isinstance(found, kind)
    return found
