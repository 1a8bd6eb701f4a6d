"""The kernel that collects commits, compiled and plain, and loads in bulk."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import kernels
from tailrace.coordinator.groups import modules
from tailrace.coordinator.groups.bulk_commits import KEYS_MAX
from tailrace.kernels.commits import NAME_WIDTH, STATE_SIZE, CommitColumn, CommitState, take_commits
from tailrace.model import TopicPartition
from tailrace.protocol.coordinator_records import encode_key, encode_value
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.records import OffsetCommitKey, OffsetCommitValue
from tailrace.records import layout, packages
from tailrace.records.builder import BatchBuilder
from tailrace.runtime import memory
from tailrace.testing import Outside
from tests.kernels.plain import ENGINES, engine
from tests.properties.test_bulk_commits import batches
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_groups import commit, committed, find
from tests.unit.coordinator.groups.both_ways import check_both_ways, in_a_log

ROWS = 8
"""Room for few keys, so that it ends often."""

Outcome = tuple[int, list[int], list[int], list[int], bytes]


def taken(window: bytes, engine_name: str) -> Outcome:
    """Everything that the kernel has written."""
    state = kernels.int64s(STATE_SIZE)
    state[CommitState.GENERATION] = 1
    state[CommitState.HASH_SECRET], state[CommitState.HASH_SECRET + 1] = 123_456_789, 987_654_321
    columns = kernels.int64s(len(CommitColumn) * ROWS)
    names, arena = kernels.int64s(NAME_WIDTH * 24), bytearray(600)
    arguments = (
        window, ROWS, state, columns, kernels.int64s(2 * ROWS),
        names, kernels.int64s(32), arena,
    )  # fmt: skip
    result = engine(engine_name, take_commits)(*arguments)
    return result, list(state), list(columns), list(names), bytes(arena)


@given(
    st.lists(batches(may_be_damaged=True), max_size=5),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255), st.booleans()), max_size=2),
    st.integers(0, 70),
)
def test_compiled_and_plain_code_take_the_same(
    content: list[bytes], edits: list[tuple[int, int, bool]], cut: int
) -> None:
    """Whatever the bytes are, with checksums that fit them and without."""
    log = [bytearray(each) for each in in_a_log(content)]
    for place, change, is_sealed in edits:
        if log:
            batch = log[place % len(log)]
            batch[place % len(batch)] ^= change
            if is_sealed:
                crc = packages.crc32c.crc32c(memoryview(batch)[layout.ATTRIBUTES_POSITION :])
                layout.CRC.pack_into(batch, layout.CRC_POSITION, crc)
    window = b"".join(log)
    window = window[: len(window) - cut] if cut < 60 else window
    compiled, plain = (taken(window, name) for name in ENGINES)
    assert compiled == plain


def stored(groups: int, partitions: int, *, rounds: int = 1) -> list[bytes]:
    """Batches of 500 in which each group commits for each partition."""
    value = encode_value(OffsetCommitValue(offset=7, metadata="", commit_timestamp=1), 4)
    keys = [
        encode_key(OffsetCommitKey(group=f"g{group}", topic="a", partition=partition))
        for group in range(groups)
        for partition in range(partitions)
    ] * rounds
    content = []
    for start in range(0, len(keys), 500):
        builder = BatchBuilder()
        for key in keys[start : start + 500]:
            builder.append(key, value, timestamp=1)
        content.append(builder.build())
    return in_a_log(content)


def test_more_keys_than_there_is_room_for_are_loaded() -> None:
    """They are put when the room is used up, and then the next ones are taken."""
    content = stored(50, KEYS_MAX // 50 + 20)
    loaded = check_both_ways(content)
    assert loaded.taken_bytes == sum(map(len, content))
    assert loaded.state is not None
    assert sum(map(len, loaded.state.committed.values())) > KEYS_MAX


def test_one_partition_is_one_object_for_all_groups() -> None:
    """A million offsets of the same partitions share what does not differ."""
    loaded = check_both_ways(stored(3, 4))
    assert loaded.state is not None
    found = [
        next(each for each in offsets if each == TopicPartition("a", 1))
        for offsets in loaded.state.committed.values()
    ]
    assert len(found) == 3
    assert len(set(map(id, found))) == 1


async def test_a_broker_loads_its_groups_in_bulk(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is worth it, which this small one is said to be, stays out of collections."""
    monkeypatch.setattr(modules, "LOG_BYTES_MIN", 1)
    monkeypatch.setattr(memory, "_process", memory._Process())
    memory.claim_process()
    settings = {"offsets.topic.num.partitions": "1"}
    async with running(outside, settings) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await find(peer)
        for offset in (1, 2):
            assert await commit(peer, offset) is ErrorCode.NONE
    gc.freeze()
    frozen = gc.get_freeze_count()
    async with running(outside, settings) as broker:
        await outside.pass_time(1)
        assert await committed(connect(outside, broker)) == {"t": 2}
    assert gc.get_freeze_count() > frozen
