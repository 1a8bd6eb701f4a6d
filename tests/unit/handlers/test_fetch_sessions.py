"""Fetch sessions without a broker: which request gets which answer, and whose session goes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.config.settings import INT32_MAX
from tailrace.handlers import fetch_sessions
from tailrace.handlers.fetch_sessions import (
    FetchSessionLimits,
    FetchSessions,
    IncrementalFetch,
)
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from tailrace.runtime.slices import Slices
from tailrace.testing import Outside

EVICTION_S = 100
QUIET = PartitionData(partition_index=0, error_code=0, high_watermark=10, log_start_offset=2)
RECORDS = replace(QUIET, records=b"some")
Answers = dict[tuple[str, int], PartitionData]


def sessions_of(slot_count: int = 10, seed: int = 1) -> FetchSessions:
    """Sessions that may be replaced after `EVICTION_S`."""
    limits = FetchSessionLimits(slot_count=slot_count, eviction_s=EVICTION_S)
    return FetchSessions(limits, random.Random(seed))


def wanted(
    *named: tuple[str, int], offset: int = 0, topic_id: UUID = NO_UUID
) -> tuple[FetchTopic, ...]:
    """Partitions of a request, each in a topic of its own."""
    return tuple(
        FetchTopic(
            topic=topic,
            topic_id=topic_id,
            partitions=(
                FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=100),
            ),
        )
        for topic, number in named
    )


def request(
    session_id: int,
    epoch: int,
    topics: tuple[FetchTopic, ...] = (),
    *,
    forget: Sequence[tuple[str, int]] = (),
) -> FetchRequest:
    """A fetch request in a session, or in none."""
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=tuple(
            ForgottenTopic(topic=topic, topic_id=NO_UUID, partitions=(number,))
            for topic, number in forget
        ),
        max_wait_ms=0,
        min_bytes=0,
    )


def answer(
    sessions: FetchSessions,
    asked: FetchRequest,
    answers: Answers | None = None,
    *,
    now_s: float = 0,
    uses_topic_ids: bool = False,
) -> tuple[int, list[tuple[str, int]]] | ErrorCode:
    """Session id and partitions of the response; what is not in `answers` has no news."""
    context = sessions.begin(asked, uses_topic_ids=uses_topic_ids, now_s=now_s)
    if isinstance(context, ErrorCode):
        return context
    reads = list(context.partitions())
    assert len(reads) == context.count()
    assert context.check() is ErrorCode.NONE
    named = [(each.topic, each.wanted.partition) for each in reads]
    taken = [
        name
        for name, read in zip(named, reads, strict=True)
        if context.take(read, (answers or {}).get(name, QUIET))
    ]
    return context.end(now_s), taken


def create(sessions: FetchSessions, size: int, *, now_s: float, is_privileged: bool = False) -> int:
    """The id of a new session of `size` partitions, or 0."""
    asked = request(0, 0, wanted(*(("t", number) for number in range(size))))
    if is_privileged:
        asked = replace(asked, replica_id=3)
    found = answer(sessions, asked, now_s=now_s)
    assert not isinstance(found, ErrorCode)
    return found[0]


def use(sessions: FetchSessions, session_id: int, epoch: int, *, now_s: float) -> None:
    """Send the next request of a session."""
    assert answer(sessions, request(session_id, epoch), now_s=now_s) == (session_id, [])


def has(sessions: FetchSessions, session_id: int) -> bool:
    """Whether a session is there; asks with an epoch that it cannot have."""
    found = answer(sessions, request(session_id, INT32_MAX))
    return found is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_incremental_answer_has_news_only() -> None:
    """All partitions at first; then those with records, an error, or other offsets."""
    sessions = sessions_of()
    a, b = ("a", 0), ("b", 1)
    found = answer(sessions, request(0, 0, wanted(a, b)))
    assert not isinstance(found, ErrorCode)
    session_id, taken = found
    assert (session_id > 0, taken) == (True, [a, b])
    steps: list[tuple[Answers, list[tuple[str, int]]]] = [
        ({}, []),
        ({b: RECORDS}, [b]),
        ({}, []),
        ({a: replace(QUIET, high_watermark=11)}, [a]),
        ({a: replace(QUIET, high_watermark=11)}, []),
        ({a: replace(QUIET, high_watermark=11, log_start_offset=3)}, [a]),
        ({b: replace(QUIET, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)}, [b, a]),
        ({}, [b]),
        ({}, []),
        ({a: replace(QUIET, preferred_read_replica=2)}, [a]),
        ({a: replace(QUIET, diverging_epoch=EpochEndOffset(epoch=1, end_offset=5))}, [a]),
    ]
    for epoch, (answers, expected) in enumerate(steps, 1):
        found = answer(sessions, request(session_id, epoch), answers)
        assert not isinstance(found, ErrorCode)
        assert (found[0], sorted(found[1])) == (session_id, sorted(expected)), epoch


def test_a_partition_in_error_is_told_again_when_the_error_is_gone() -> None:
    """The client has dropped what it knew, though the offsets are the same as before."""
    sessions, a = sessions_of(), ("a", 0)
    found = answer(sessions, request(0, 0, wanted(a)))
    assert not isinstance(found, ErrorCode)
    failed = replace(QUIET, error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=10)
    assert answer(sessions, request(found[0], 1), {a: failed}) == (found[0], [a])
    assert answer(sessions, request(found[0], 2)) == (found[0], [a])
    assert answer(sessions, request(found[0], 3)) == (found[0], [])


def test_what_a_request_names_is_kept_for_later_ones() -> None:
    """Offsets, limits and epochs of a partition are those of the last request that named it."""
    sessions = sessions_of()
    first = FetchPartition(
        partition=0, fetch_offset=5, partition_max_bytes=7, current_leader_epoch=1,
        last_fetched_epoch=1,
    )  # fmt: skip
    topic = FetchTopic(topic="a", topic_id=NO_UUID, partitions=(first,))
    found = answer(sessions, request(0, 0, (topic,)))
    assert not isinstance(found, ErrorCode)

    def kept(asked: FetchRequest) -> list[FetchPartition]:
        context = sessions.begin(asked, uses_topic_ids=False, now_s=0)
        assert isinstance(context, IncrementalFetch)
        return [each.wanted for each in context.partitions()]

    assert kept(request(found[0], 1)) == [first]
    second = replace(first, fetch_offset=9, current_leader_epoch=2, last_fetched_epoch=-1)
    assert kept(request(found[0], 2, (replace(topic, partitions=(second,)),))) == [second]
    assert kept(request(found[0], 3)) == [second]


def test_partitions_come_and_go() -> None:
    """New ones are behind the others, forgotten ones are left out, and unknown ones ignored."""
    sessions = sessions_of()
    a, b, c = ("a", 0), ("b", 0), ("c", 0)
    found = answer(sessions, request(0, 0, wanted(a, b)))
    assert not isinstance(found, ErrorCode)
    asked = request(found[0], 1, wanted(c), forget=[a, ("z", 9)])
    assert answer(sessions, asked, {b: RECORDS}) == (found[0], [b, c])
    assert sessions.statistics().partition_count == 2
    context = sessions.begin(request(found[0], 2), uses_topic_ids=False, now_s=0)
    assert isinstance(context, IncrementalFetch)
    assert [each.topic for each in context.partitions()] == ["c", "b"]


def test_a_session_without_partitions_ends() -> None:
    """The answer to the request that forgets the last one has no session."""
    sessions, a = sessions_of(), ("a", 0)
    found = answer(sessions, request(0, 0, wanted(a)))
    assert not isinstance(found, ErrorCode)
    assert answer(sessions, request(found[0], 1, forget=[a])) == (0, [])
    assert not has(sessions, found[0])
    assert sessions.statistics().session_count == 0


def test_partitions_with_records_move_behind_the_others() -> None:
    """Others get their turn; a partition that has news but no records keeps its place."""
    sessions = sessions_of()
    a, b, c = ("a", 0), ("b", 0), ("c", 0)
    found = answer(sessions, request(0, 0, wanted(a, b, c)))
    assert not isinstance(found, ErrorCode)
    news = replace(QUIET, high_watermark=11)
    assert answer(sessions, request(found[0], 1), {a: RECORDS, b: news}) == (found[0], [a, b])
    assert answer(sessions, request(found[0], 2), {c: RECORDS}) == (found[0], [b, c])
    context = sessions.begin(request(found[0], 3), uses_topic_ids=False, now_s=0)
    assert isinstance(context, IncrementalFetch)
    assert [each.topic for each in context.partitions()] == ["b", "a", "c"]


def test_requests_of_a_session_come_one_after_the_other() -> None:
    """Another epoch than the next one is refused, and changes nothing."""
    sessions = sessions_of()
    session_id = create(sessions, 2, now_s=0)
    for epoch in (2, 7, INT32_MAX, -2):
        code = answer(sessions, request(session_id, epoch, forget=[("t", 0), ("t", 1)]))
        assert code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    use(sessions, session_id, 1, now_s=0)
    assert sessions.statistics().partition_count == 2


def test_the_epoch_after_the_largest_is_1() -> None:
    """0 begins a new session, so it is left out."""
    sessions = sessions_of()
    session_id = create(sessions, 1, now_s=0)
    sessions._sessions[session_id].epoch = INT32_MAX
    use(sessions, session_id, INT32_MAX, now_s=0)
    use(sessions, session_id, 1, now_s=0)


def test_an_answer_that_another_request_overtook_is_refused() -> None:
    """A client that has sent its next request does not wait for this answer any more."""
    sessions = sessions_of()
    session_id = create(sessions, 1, now_s=0)
    waiting = sessions.begin(request(session_id, 1), uses_topic_ids=False, now_s=0)
    use(sessions, session_id, 2, now_s=0)
    assert isinstance(waiting, IncrementalFetch)
    assert waiting.check() is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_told() -> None:
    """Also one that has ended: with epoch 0 a session is replaced, with -1 it goes."""
    sessions = sessions_of()
    assert answer(sessions, request(77, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = create(sessions, 1, now_s=0)
    found = answer(sessions, request(first, 0, wanted(("t", 0))))
    assert not isinstance(found, ErrorCode)
    assert (found[0] in {0, first}, has(sessions, first)) == (False, False)
    assert answer(sessions, request(found[0], -1, wanted(("t", 0)))) == (0, [("t", 0)])
    assert answer(sessions, request(found[0], 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("uses_topic_ids", [False, True])
def test_names_and_ids_do_not_mix(*, uses_topic_ids: bool) -> None:
    """A session whose first request named topics one way refuses the other."""
    sessions, a = sessions_of(), ("a", 0)
    found = answer(sessions, request(0, 0, wanted(a)), uses_topic_ids=uses_topic_ids)
    assert not isinstance(found, ErrorCode)
    asked = request(found[0], 1)
    code = answer(sessions, asked, uses_topic_ids=not uses_topic_ids)
    assert code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert answer(sessions, asked, uses_topic_ids=uses_topic_ids) == (found[0], [])


def test_session_ids_are_positive_and_of_one_session() -> None:
    """Whatever chance gives, no two sessions have the same id, and none has 0."""

    class Chance(random.Random):
        def getrandbits(self, _: int) -> int:
            return next(drawn)

    drawn = iter([0, 5, 5, 0, 9])
    limits = FetchSessionLimits(slot_count=10, eviction_s=EVICTION_S)
    sessions = FetchSessions(limits, Chance())
    assert [create(sessions, 1, now_s=0) for _ in range(2)] == [5, 9]
    many = sessions_of(slot_count=1000)
    ids = {create(many, 1, now_s=0) for _ in range(1000)}
    assert (len(ids), min(ids) > 0, max(ids) <= INT32_MAX) == (1000, True, True)


def test_a_full_cache_replaces_by_age_and_size() -> None:
    """An unused session goes first; then the smallest that is old, for a larger one."""
    sessions = sessions_of(slot_count=3)
    first, second, third = (create(sessions, 10 * n, now_s=10 * n) for n in (1, 2, 3))
    assert create(sessions, 40, now_s=40) == create(sessions, 5, now_s=50) == 0
    use(sessions, first, 1, now_s=200)
    fourth = create(sessions, 11, now_s=210)
    assert [has(sessions, each) for each in (first, second, third, fourth)] == [
        True, False, True, True,
    ]  # fmt: skip
    use(sessions, third, 1, now_s=390)
    use(sessions, first, 2, now_s=400)
    use(sessions, fourth, 1, now_s=400)
    fifth = create(sessions, 50, now_s=410)
    assert not has(sessions, first)
    assert create(sessions, 5, now_s=410) == 0
    sixth = create(sessions, 5, now_s=410, is_privileged=True)
    assert [has(sessions, each) for each in (third, fourth, fifth, sixth)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert sessions.statistics().evicted_count == 3


def test_a_session_of_the_same_size_does_not_replace_another() -> None:
    """Only more partitions are worth a session that is in use."""
    sessions = sessions_of(slot_count=1)
    first = create(sessions, 5, now_s=0)
    use(sessions, first, 1, now_s=101)
    assert create(sessions, 5, now_s=110) == 0
    assert create(sessions, 6, now_s=110) > 0
    assert not has(sessions, first)


def test_consumers_do_not_replace_sessions_of_followers() -> None:
    """A follower replaces any consumer's, and another follower's only when that is old."""
    sessions = sessions_of(slot_count=2)
    consumer, follower = (
        create(sessions, 50, now_s=0), create(sessions, 1, now_s=0, is_privileged=True)
    )  # fmt: skip
    new = create(sessions, 1, now_s=1, is_privileged=True)
    assert (new > 0, has(sessions, consumer), has(sessions, follower)) == (True, False, True)
    assert create(sessions, 90, now_s=2, is_privileged=True) == 0
    for epoch, now_s in ((1, 90), (2, 180)):
        use(sessions, follower, epoch, now_s=now_s)
        use(sessions, new, epoch, now_s=now_s)
    assert create(sessions, 1000, now_s=190) == 0
    assert create(sessions, 2, now_s=190, is_privileged=True) > 0


@pytest.mark.parametrize(
    "state", [{"replica_id": 2}, {"replica_state": ReplicaState(replica_id=2)}]
)
def test_followers_are_known_by_their_id(state: dict[str, object]) -> None:
    """Up to v14 it is a field of its own, from v15 a part of the state."""
    sessions = sessions_of(slot_count=1)
    create(sessions, 5, now_s=0)
    asked = replace(request(0, 0, wanted(("t", 0))), **state)  # type: ignore[arg-type]
    found = answer(sessions, asked)
    assert not isinstance(found, ErrorCode)
    assert found[0] > 0


def test_without_slots_there_are_no_sessions() -> None:
    """Every answer is one of no session, and nothing is kept."""
    sessions = sessions_of(slot_count=0)
    assert create(sessions, 3, now_s=0) == 0
    assert sessions.statistics().partition_count == 0


def test_partitions_of_all_sessions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that would be too much is not made, and one that grows too much ends."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    sessions = sessions_of()
    first = create(sessions, 6, now_s=0)
    assert create(sessions, 5, now_s=1) == 0
    second = create(sessions, 4, now_s=1)
    assert answer(sessions, request(second, 1, wanted(("t", 3)))) == (second, [])
    found = answer(sessions, request(second, 2, wanted(("t", 4))), now_s=50)
    assert found == (0, [("t", 4)])
    assert not has(sessions, second)
    assert sessions.statistics().partition_count == 6
    assert create(sessions, 8, now_s=150) > 0
    assert not has(sessions, first)


def test_counts_follow_the_sessions() -> None:
    """Statistics tell sessions, their partitions, and those that were replaced."""
    sessions = sessions_of(slot_count=2)
    first = create(sessions, 2, now_s=0)
    create(sessions, 4, now_s=0)
    told = sessions.statistics()
    assert (told.session_count, told.partition_count, told.evicted_count) == (2, 6, 0)
    create(sessions, 5, now_s=200)
    told = sessions.statistics()
    assert (told.session_count, told.partition_count, told.evicted_count) == (2, 9, 1)
    assert not has(sessions, first)


async def test_a_long_request_is_taken_over_in_slices(outside: Outside) -> None:
    """It changes a session as a short one does, and is refused for the same reasons."""
    assert outside.loop.is_running()
    one, other = sessions_of(), sessions_of()
    session_id = create(one, 500, now_s=0)
    assert create(other, 500, now_s=0) == session_id
    more = wanted(*(("t", number) for number in range(400, 900)), offset=7)
    for asked in (
        request(session_id, 1, more, forget=[("t", 7), ("t", 800)]),
        request(session_id, 1, more),
        request(session_id, 2),
        request(0, 0, more),
    ):
        found = one.begin(asked, uses_topic_ids=False, now_s=1)
        same = await other.begin_in_slices(asked, Slices(), uses_topic_ids=False, now_s=1)
        if isinstance(found, ErrorCode) or isinstance(same, ErrorCode):
            assert found == same
        else:
            # The answers that they cache are each session's own.
            left, right = ([row[:3] for row in each.partitions()] for each in (found, same))
            assert left == right
        assert one.statistics() == other.statistics()
