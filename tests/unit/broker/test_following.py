"""Partitions that a broker follows, against a scripted leader."""

import logging

import pytest

from tailrace.client.nodes import Node
from tailrace.model import LeaderEpoch
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
)
from tailrace.replication.waiting import Signal
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.broker.leaders import (
    FOLLOWER,
    Follower,
    ScriptedLeader,
    Spoil,
    content,
    id_of,
    place,
)
from tests.unit.storage.builders import NOW, batch
from tests.unit.storage.transactional import replicated

BACKOFF_S = 1.0
SOON_S = 0.1
"""Enough for some answers, and less than any pause."""


def editing(**changes: object) -> Spoil:
    """Change the fields of each partition in the answers."""

    def spoil(_: FetchRequest, answer: FetchResponse) -> FetchResponse:
        return replace(
            answer,
            responses=tuple(
                replace(
                    topic,
                    partitions=tuple(
                        replace(each, **changes)  # type: ignore[arg-type]
                        for each in topic.partitions
                    ),
                )
                for topic in answer.responses
            ),
        )

    return spoil


def once(spoil: Spoil) -> Spoil:
    """Spoil the first answer only."""
    left = [spoil]
    return lambda request, answer: left.pop()(request, answer) if left else answer


def refusing(code: ErrorCode) -> Spoil:
    return editing(error_code=code, records=b"")


# -- fetching ---------------------------------------------------------------------------------


async def test_a_follower_gets_what_the_leader_writes(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The same bytes, and the high watermark one fetch later."""
    leader.write(b"a", b"b")
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])
    assert follower.log().positions.high_watermark == 2
    leader.write(b"c")
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])


async def test_requests_say_what_the_leader_has_to_know(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The broker and its epoch (KIP-903), and of each partition epochs, log end and log start."""
    leader.write(b"a", b"b", b"c")
    leader.raise_log_start(1)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    first, second = leader.requests[:2]
    state = first.replica_state
    assert (state.replica_id, state.replica_epoch) == (FOLLOWER, 70)
    (asked,) = second.topics[0].partitions
    assert second.topics[0].topic_id == id_of("flights")
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, -1)
    last = leader.requests[-1].topics or leader.requests[-2].topics
    assert last[0].partitions[0].current_leader_epoch == 0
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10 << 20)


async def test_partitions_of_one_leader_share_a_connection_and_a_session(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A request names only what has changed since the last (KIP-227)."""
    names = [place(number) for number in range(20)]
    for name in names:
        leader.lead(name)
        follower.follow(leader, name=name)
    await outside.pass_time(2)
    leader.write(b"a", name=place(7))
    await outside.pass_time(2)
    assert leader.connections == 1
    named = [sum(len(topic.partitions) for topic in each.topics) for each in leader.requests]
    assert named[0] == 20
    assert sum(named) == 21
    assert content(follower.log(place(7))) == content(leader.logs[place(7)])


async def test_a_session_with_many_partitions_grows_in_parts(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Also after the leader has lost it; the requests in between do not wait for records."""
    names = [place(number) for number in range(250)]
    for name in names:
        leader.lead(name)
        follower.partition(name, segment_index_bytes=120)
        follower.follow(leader, name=name)
    for _ in range(2):
        del leader.requests[:]
        await outside.pass_time(2)
        found = [
            (sum(len(topic.partitions) for topic in each.topics), each.max_wait_ms)
            for each in leader.requests
        ]
        assert [each for each in found if each[0]] == [(100, 0), (100, 0), (50, 500)]
        leader.lose_sessions()


async def test_an_idle_session_asks_twice_a_second(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The leader waits `replica.fetch.wait.max.ms` for records."""
    follower.follow(leader)
    await outside.pass_time(10)
    assert 15 < len(leader.requests) < 25


async def test_a_partition_that_is_not_followed_any_more_leaves_the_session(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Its log stays as it was, also with an answer under way."""
    for number in (0, 1):
        leader.lead(place(number))
        follower.follow(leader, name=place(number))
    await outside.pass_time(SOON_S)
    leader.write(b"a")
    follower.following.stop([place()])
    await outside.pass_time(1)
    assert follower.log().end_offset == 0
    forgotten = [each for request in leader.requests for each in request.forgotten_topics_data]
    assert [(each.topic_id, each.partitions) for each in forgotten] == [(id_of("flights"), (0,))]
    assert follower.following.statistics().partition_count == 1


async def test_the_last_partition_of_a_leader_ends_its_connection(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """And another one begins it again."""
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    follower.following.stop([place()])
    await outside.pass_time(1)
    assert follower.following.statistics().leader_count == 0
    follower.follow(leader)
    leader.write(b"a")
    await outside.pass_time(SOON_S)
    assert follower.log().end_offset == 1


@pytest.mark.parametrize("is_broken", [False, True])
async def test_the_end_waits_for_no_answer(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    is_broken: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A request is under way, or the connection has broken: nothing is asked or raised after."""
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    if is_broken:
        leader.spoil = lambda *_: None
        await outside.pass_time(1)
    before = outside.loop.time()
    await follower.following.close()
    assert outside.loop.time() == before
    count = len(leader.requests)
    leader.write(b"a")
    await outside.pass_time(5)
    assert (len(leader.requests), follower.log().end_offset) == (count, 0)


async def test_following_in_the_same_epoch_changes_nothing(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """No new session, and the partition is not named again."""
    follower.follow(leader)
    await outside.pass_time(2)
    before = len([each for each in leader.requests if each.topics])
    follower.follow(leader)
    await outside.pass_time(2)
    assert len([each for each in leader.requests if each.topics]) == before


async def test_the_log_start_follows_that_of_the_leader(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """DeleteRecords waits for it, so the leader is told."""
    leader.write(b"a", b"b", b"c")
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    leader.raise_log_start(2)
    await outside.pass_time(1)
    assert follower.log().start_offset == 2
    named = [each for each in leader.requests if each.topics][-1]
    assert named.topics[0].partitions[0].log_start_offset == 2


async def test_an_empty_follower_begins_where_the_leaders_log_begins(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Also if that lies inside of a batch, which the leader sends whole."""
    log = leader.logs[place()]
    log.append(memoryview(batch(b"a", b"b", b"c")), leader_epoch=LeaderEpoch(0), now_ms=NOW)
    leader.raise_log_start(2)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    assert (follower.log().start_offset, follower.log().end_offset) == (2, 3)
    assert len(content(follower.log())) == 1


async def test_a_partition_in_small_segments_is_fetched_in_small_parts(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Batches that are appended together have to fit one segment."""
    leader.write(*(b"v" * 100 for _ in range(100)))
    follower.partition(segment_bytes=500)
    follower.follow(leader)
    await outside.pass_time(5)
    assert content(follower.log()) == content(leader.logs[place()])
    assert max(each.size for each in follower.log().segments) <= 500


async def test_records_wake_the_readers_of_a_follower(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Consumers may read from a follower (KIP-392), and wait for the high watermark there."""
    follower.follow(leader)
    signal = Signal()
    follower.partition().appended.add(signal)
    leader.write(b"a")
    assert await signal.wait_until(outside.loop.time() + 1)
    assert follower.log().end_offset == 1


# -- leader epochs ----------------------------------------------------------------------------


async def test_records_that_the_leader_does_not_have_are_cut(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A leader that was replaced has written more, which nobody has acknowledged (KIP-101)."""
    leader.write(b"a", b"b")
    follower.write(b"a", b"b", b"lost", b"lost too")
    leader.lead(epoch=1)
    leader.write(b"c")
    follower.follow(leader, epoch=1)
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])
    assert follower.log().epochs.entries == leader.logs[place()].epochs.entries


async def test_epochs_that_the_follower_lacks_are_approached_step_by_step(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Two leaders have written without each other (KIP-279)."""
    leader.write(b"a")
    leader.lead(epoch=1)
    leader.write(b"b", b"c")
    leader.lead(epoch=3)
    leader.write(b"d")
    follower.write(b"a", b"x")
    follower.write(b"y", b"z", epoch=2)
    follower.follow(leader, epoch=3)
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])


async def test_an_answer_with_a_diverging_epoch_has_no_records_or_watermark(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Both are those of the next answer, when the log was cut."""
    leader.write(b"a", b"b", b"c")
    follower.write(b"a", b"b")
    follower.partition().log.advance_high_watermark(1)
    leader.spoil = once(
        editing(diverging_epoch=EpochEndOffset(epoch=0, end_offset=1), high_watermark=2)
    )
    watermarks: list[int] = []
    follower.follow(leader)
    while follower.log().end_offset != 1:
        watermarks.append(follower.log().positions.high_watermark)
        await outside.pass_time(0.0005)
    assert set(watermarks) == {1}
    await outside.pass_time(SOON_S)
    assert content(follower.log()) == content(leader.logs[place()])


async def test_a_cut_of_committed_records_is_logged(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After an unclean election, or from a leader that lies; with both offsets."""
    leader.write(b"a")
    leader.lead(epoch=1)
    follower.write(b"a", b"committed")
    follower.log().advance_high_watermark(2)
    follower.follow(leader, epoch=1)
    await outside.pass_time(SOON_S)
    assert follower.log().end_offset == 1
    assert "committed_records_cut" in caplog.text
    assert "offset=1 high_watermark=2" in caplog.text


async def test_a_log_without_epochs_is_cut_to_its_high_watermark(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The leader cannot say where it diverges."""
    leader.write(b"a", b"b", b"c")
    log = follower.log()
    for offset, value in enumerate((b"a", b"x")):
        log.append_as_follower(memoryview(replicated(offset, value, leader_epoch=-1)), now_ms=NOW)
    log.advance_high_watermark(1)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    assert content(log)[1:] == content(leader.logs[place()])[1:]


async def test_records_of_a_newer_leader_epoch_wait_for_the_image(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """They are not appended, and not asked for without a pause (KAFKA-18723)."""
    leader.lead(epoch=1)
    leader.write(b"new")
    leader.epochs[place()] = 0
    follower.follow(leader)
    await outside.pass_time(5.5 * BACKOFF_S)
    assert follower.log().end_offset == 0
    assert len(leader.requests) < 20
    leader.lead(epoch=1)
    follower.follow(leader, epoch=1)
    await outside.pass_time(1)
    assert follower.log().end_offset == 1


async def test_an_answer_for_the_epoch_before_changes_nothing(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The image has another leader epoch when the answer comes."""
    leader.write(b"old")

    def change(_: FetchRequest, answer: FetchResponse) -> FetchResponse:
        follower.follow(leader, epoch=1)
        return answer

    leader.spoil = once(change)
    follower.follow(leader)
    await outside.pass_time(0.01)
    assert follower.log().end_offset == 0
    leader.lead(epoch=1)
    await outside.pass_time(2)
    assert follower.log().end_offset == 1


async def test_a_fenced_epoch_waits_for_the_next_one(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The image that names the new leader is on its way; until then nothing is asked."""
    leader.lead(epoch=2)
    leader.write(b"a")
    follower.follow(leader, epoch=1)
    await outside.pass_time(5)
    assert follower.following.statistics().failed_count == 1
    assert len(leader.requests) < 3
    follower.follow(leader, epoch=2)
    await outside.pass_time(SOON_S)
    assert follower.log().end_offset == 1
    assert follower.following.statistics().failed_count == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_other_errors_are_asked_again_after_a_pause(
    outside: Outside, leader: ScriptedLeader, follower: Follower, code: ErrorCode
) -> None:
    """The leader's image may be older, or its device has trouble."""
    leader.write(b"a")
    leader.spoil = once(refusing(code))
    follower.follow(leader)
    await outside.pass_time(0.9 * BACKOFF_S)
    assert follower.log().end_offset == 0
    assert follower.following.statistics().delayed_count == 1
    await outside.pass_time(0.7)
    assert follower.log().end_offset == 1


async def test_only_the_partition_with_an_error_is_delayed(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The others are fetched meanwhile."""
    leader.lead(place(1))
    leader.lead(place(0), epoch=0)
    follower.follow(leader, epoch=5)
    follower.follow(leader, name=place(1))
    await outside.pass_time(0.2)
    leader.write(b"a", name=place(1))
    await outside.pass_time(SOON_S)
    assert follower.log(place(1)).end_offset == 1
    assert follower.following.statistics().delayed_count == 1


# -- out of range -----------------------------------------------------------------------------


async def test_a_log_that_ends_after_the_leaders_is_cut_to_its_end(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Epochs do not tell everything: the leader says that the offset is out of its range.

    What was acknowledged is lost, and the log says so.
    """
    leader.write(b"a")
    follower.write(b"a", b"b", b"c")
    follower.log().advance_high_watermark(3)
    leader.spoil = once(refusing(ErrorCode.OFFSET_OUT_OF_RANGE))
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    assert leader.list_requests == 2
    assert content(follower.log()) == content(leader.logs[place()])
    assert "committed_records_cut" in caplog.text
    assert "offset=1 high_watermark=3" in caplog.text


async def test_a_log_that_ends_before_the_leaders_begins_is_restarted(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The leader has deleted what would come next."""
    leader.write(b"a", b"b", b"c", b"d")
    leader.raise_log_start(3)
    follower.write(b"a")
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    assert (follower.log().start_offset, follower.log().end_offset) == (3, 4)


async def test_a_range_that_cannot_be_asked_for_is_asked_again(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The log stays as it was until then."""
    leader.write(b"a", b"b", b"c")
    leader.raise_log_start(2)
    follower.follow(leader)
    lists = iter((-5, 1 << 63))
    leader.offset_of = lambda offset: min(next(lists, offset), (1 << 63) - 1)
    await outside.pass_time(0.5)
    assert (follower.log().start_offset, follower.log().end_offset) == (0, 0)
    await outside.pass_time(4)
    assert (follower.log().start_offset, follower.log().end_offset) == (2, 3)


@pytest.mark.parametrize(
    ("code", "failed"),
    [(ErrorCode.FENCED_LEADER_EPOCH, 1), (ErrorCode.UNKNOWN_LEADER_EPOCH, 0)],
)
async def test_a_range_that_the_leader_refuses_to_tell_changes_nothing(
    outside: Outside, leader: ScriptedLeader, follower: Follower, code: ErrorCode, failed: int
) -> None:
    """A fenced epoch waits for the next one, another error is asked again."""
    leader.write(b"a", b"b", b"c")
    leader.raise_log_start(2)
    leader.list_codes = [code]
    follower.follow(leader)
    await outside.pass_time(0.5)
    assert follower.log().end_offset == 0
    assert follower.following.statistics().failed_count == failed
    await outside.pass_time(3)
    assert follower.log().end_offset == (0 if failed else 3)


# -- sessions and connections -----------------------------------------------------------------


async def test_a_lost_session_is_begun_again_at_once(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The leader had to evict it, or was restarted."""
    follower.follow(leader)
    await outside.pass_time(2)
    leader.lose_sessions()
    leader.write(b"a")
    await outside.pass_time(0.6)
    assert follower.log().end_offset == 1


async def test_a_leader_without_sessions_is_asked_for_everything(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """It has no room for one more."""
    leader.has_sessions = False
    follower.follow(leader)
    await outside.pass_time(1)
    leader.write(b"a")
    await outside.pass_time(1)
    assert follower.log().end_offset == 1
    assert all(each.session_epoch == 0 and each.topics for each in leader.requests)


async def test_a_connection_that_breaks_is_made_again(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """After a pause, with a full request."""
    follower.follow(leader)
    await outside.pass_time(0.2)
    leader.spoil = once(lambda *_: None)
    leader.write(b"a", b"b")
    await outside.pass_time(0.5)
    assert follower.log().end_offset == 0
    await outside.pass_time(2)
    assert content(follower.log()) == content(leader.logs[place()])
    assert leader.connections == 2


async def test_a_leader_that_does_not_answer_is_given_up_in_time(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """`replica.socket.timeout.ms`; then it is asked again, on another connection."""
    leader.delay_s = 100
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    leader.delay_s = 0.001
    leader.write(b"a")
    await outside.pass_time(45)
    assert follower.log().end_offset == 1


async def test_a_leader_that_is_not_there_is_logged_once(
    outside: Outside, follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be down for hours; that it is back is logged too."""
    caplog.set_level(logging.INFO)
    follower.following.follow(
        follower.partition(),
        topic_id=id_of("flights"),
        leader=Node(1, "memory", 33_333),
        epoch=LeaderEpoch(0),
    )
    await outside.pass_time(10)
    assert caplog.text.count("leader_unreachable") == 1
    leader = ScriptedLeader(outside, port=33_333)
    leader.lead()
    leader.write(b"a")
    await outside.pass_time(5)
    assert follower.log().end_offset == 1
    assert caplog.text.count("leader_reachable") == 1
    await leader.close()


async def test_a_leader_at_another_address_is_asked_there(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """For all its partitions, although only one of them is named again."""
    for number in (0, 1):
        leader.lead(place(number))
        follower.follow(leader, name=place(number))
    await outside.pass_time(SOON_S)
    moved = ScriptedLeader(outside)
    for number in (0, 1):
        moved.lead(place(number))
        moved.write(b"moved", name=place(number))
    follower.follow(moved)
    await outside.pass_time(2)
    assert [follower.log(place(number)).end_offset for number in (0, 1)] == [1, 1]
    assert follower.following.statistics().leader_count == 1
    await moved.close()


# -- leaders that lie -------------------------------------------------------------------------


async def test_damaged_records_are_fetched_again(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing of them is appended; the log names partition, leader and offset."""
    leader.write(b"a", b"b")

    def damage(_: FetchRequest, answer: FetchResponse) -> FetchResponse:
        data = bytearray(answer.responses[0].partitions[0].records or b"")  # type: ignore[arg-type]
        data[-1] ^= 1
        spoiled = editing(records=bytes(data))(_, answer)
        assert spoiled is not None
        return spoiled

    leader.spoil = once(damage)
    follower.follow(leader)
    await outside.pass_time(0.5)
    assert follower.log().end_offset == 0
    assert "fetched_records_refused partition=flights-0 leader=node 1" in caplog.text
    assert "offset=0" in caplog.text
    await outside.pass_time(2)
    assert content(follower.log()) == content(leader.logs[place()])


async def test_records_that_stay_damaged_end_the_following_of_the_epoch(
    outside: Outside,
    leader: ScriptedLeader,
    follower: Follower,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The damage is in the leader's log; the other partitions go on."""
    leader.lead(place(1))
    leader.write(b"a")
    leader.spoil = editing(records=b"\0" * 100)
    follower.follow(leader)
    await outside.pass_time(10)
    assert follower.following.statistics().failed_count == 1
    assert "partition_not_followed" in caplog.text
    leader.spoil = lambda _, answer: answer
    count = len(leader.requests)
    follower.follow(leader, name=place(1))
    leader.write(b"b", name=place(1))
    await outside.pass_time(2)
    assert follower.log(place(1)).end_offset == 1
    assert follower.log().end_offset == 0
    assert len(leader.requests) > count
    leader.lead(epoch=1)
    follower.follow(leader, epoch=1)
    await outside.pass_time(2)
    assert follower.log().end_offset == 1


async def test_records_that_the_log_has_already_are_refused(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """A leader that sends an older part of the log changes nothing below."""
    leader.write(b"a", b"b")
    old = content(leader.logs[place()])[0]
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    leader.spoil = editing(records=old)
    leader.write(b"c")
    await outside.pass_time(5)
    assert content(follower.log()) == content(leader.logs[place()])[:2]
    assert follower.following.statistics().failed_count == 1


async def test_an_answer_with_partitions_that_were_not_asked_for_is_not_taken(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """The session is begun again after a pause."""
    leader.write(b"a")
    leader.spoil = once(editing(partition_index=7))
    follower.follow(leader)
    await outside.pass_time(0.5)
    assert follower.log().end_offset == 0
    await outside.pass_time(1)
    assert follower.log().end_offset == 1


async def test_a_high_watermark_after_the_log_end_counts_up_to_it(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """And a log start after the high watermark too."""
    leader.write(b"a", b"b")
    leader.spoil = editing(high_watermark=1 << 40, log_start_offset=1 << 41)
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    positions = follower.log().positions
    assert (positions.log_start, positions.high_watermark, positions.log_end) == (2, 2, 2)


async def test_an_answer_without_a_whole_batch_is_not_asked_for_at_once(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """No sound leader sends one; the pause keeps both brokers from spinning."""
    leader.write(b"a")
    first = content(leader.logs[place()])[0]
    leader.spoil = editing(records=first[:30])
    follower.follow(leader)
    await outside.pass_time(10)
    assert len(leader.requests) < 40
    assert follower.log().end_offset == 0


# -- statistics -------------------------------------------------------------------------------


async def test_the_statistics_count_what_was_fetched(
    outside: Outside, leader: ScriptedLeader, follower: Follower
) -> None:
    """Partitions, their lag, bytes and requests."""
    leader.write(b"a", b"b")
    follower.follow(leader)
    await outside.pass_time(SOON_S)
    found = follower.following.statistics()
    assert (found.leader_count, found.partition_count) == (1, 1)
    assert (found.delayed_count, found.failed_count, found.lag_max, found.error_count) == (0,) * 4
    assert found.fetched_bytes == leader.logs[place()].size
    assert found.request_count == len(leader.requests)
