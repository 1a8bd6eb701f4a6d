"""The conclusions of a leader from the fetches of its followers."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from tailrace.model import LeaderEpoch, Offset
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.metadata_records import PartitionRecord
from tailrace.replication.leadership import (
    UNKNOWN,
    IsrChange,
    Leadership,
    NotReplicaError,
    Rejection,
    StaleFollowerError,
)

LAG_MS = 30_000
LEADER, SECOND, THIRD = 1, 2, 3


class Cluster:
    """Three brokers in a partition that the first leads, at a time that the test sets."""

    def __init__(self) -> None:
        self.alive = {LEADER: 100, SECOND: 200, THIRD: 300}
        self.shutting_down: set[int] = set()
        self.leadership = Leadership(LEADER, self, lag_ms=LAG_MS)
        self.log_end = Offset(0)
        self.watermark = Offset(0)
        self.now_ms = 0
        self.insync_min = 1

    def alive_epoch(self, broker_id: int) -> int | None:
        return self.alive.get(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self.shutting_down

    def lead(
        self,
        isr: Sequence[int] = (LEADER, SECOND, THIRD),
        *,
        epoch: int = 5,
        partition_epoch: int = 10,
        replicas: Sequence[int] = (LEADER, SECOND, THIRD),
        adding: Sequence[int] = (),
    ) -> bool:
        state = PartitionRecord(
            partition_id=0,
            topic_id=UUID(int=1),
            replicas=tuple(replicas),
            isr=tuple(isr),
            removing_replicas=(),
            adding_replicas=tuple(adding),
            leader=LEADER,
            leader_epoch=epoch,
            partition_epoch=partition_epoch,
            directories=(),
        )
        is_new = self.leadership.lead(state, log_end=self.log_end, now_ms=self.now_ms)
        self.move()
        return is_new

    def append(self, count: int) -> None:
        self.log_end = Offset(self.log_end + count)
        self.move()

    def fetch(self, broker_id: int, offset: int, *, epoch: int | None = None) -> IsrChange | None:
        """A fetch of a follower, as the broker handles it; the change that it proposes."""
        self.leadership.note_fetch(
            broker_id,
            broker_epoch=self.alive.get(broker_id, -1) if epoch is None else epoch,
            offset=Offset(offset),
            log_start=Offset(0),
            log_end=self.log_end,
            now_ms=self.now_ms,
        )
        change = self.leadership.expand(broker_id, high_watermark=self.watermark)
        self.move()
        return change

    def shrink(self) -> IsrChange | None:
        return self.leadership.shrink(log_end=self.log_end, now_ms=self.now_ms)

    def confirm(self, change: IsrChange, *, partition_epoch: int = 11, epoch: int = 5) -> bool:
        is_taken = self.leadership.confirm(
            change, change.isr, leader_epoch=epoch, partition_epoch=partition_epoch
        )
        self.move()
        return is_taken

    def move(self) -> None:
        """Move the watermark as the log does, which never goes back."""
        if self.leadership.epoch < 0:
            return
        found = self.leadership.high_watermark(
            self.log_end, now_ms=self.now_ms, insync_min=self.insync_min
        )
        self.watermark = max(self.watermark, found)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_high_watermark_is_what_all_members_have(cluster: Cluster) -> None:
    """It waits for the slowest member of the ISR, and for no broker outside of it."""
    cluster.append(10)
    cluster.lead(isr=(LEADER, SECOND))
    assert cluster.watermark == 0
    cluster.fetch(SECOND, 7)
    assert cluster.watermark == 7
    cluster.fetch(SECOND, 10)
    assert cluster.watermark == 10


def test_a_sole_replica_commits_what_it_appends(cluster: Cluster) -> None:
    """Nobody else has to have it."""
    cluster.lead(isr=(LEADER,), replicas=(LEADER,))
    cluster.append(3)
    assert cluster.watermark == 3


def test_too_few_members_hold_the_high_watermark(cluster: Cluster) -> None:
    """Under `min.insync.replicas` nothing more becomes readable, whatever acks its producer has."""
    cluster.insync_min = 2
    cluster.lead(isr=(LEADER,))
    cluster.append(4)
    assert cluster.watermark == 0
    change = cluster.fetch(SECOND, 4)
    assert change is not None
    assert cluster.watermark == 0
    cluster.confirm(change)
    assert cluster.watermark == 4


def test_the_least_of_members_is_not_above_the_number_of_replicas(cluster: Cluster) -> None:
    """One is enough where `min.insync.replicas` is two, until another is added, as in Kafka."""
    cluster.insync_min = 2
    cluster.lead(isr=(LEADER,), replicas=(LEADER,))
    cluster.append(1)
    assert cluster.watermark == 1
    cluster.lead(isr=(LEADER,), replicas=(LEADER, SECOND), adding=(SECOND,), partition_epoch=11)
    cluster.append(1)
    assert cluster.watermark == 1
    change = cluster.fetch(SECOND, 2)
    assert change is not None
    cluster.confirm(change)
    assert cluster.watermark == 2


def test_the_image_of_a_confirmed_change_has_the_replicas(cluster: Cluster) -> None:
    """A reassignment ends with the ISR that an answer has, and that none is added any more.

    Only the image says the latter, in the same partition epoch.
    """
    adding = (SECOND, THIRD)
    cluster.lead(isr=(LEADER, SECOND), adding=adding)
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    assert cluster.confirm(change)
    cluster.lead(partition_epoch=11)
    cluster.now_ms += LAG_MS + 1
    cluster.append(1)
    cluster.fetch(SECOND, 1)
    late = cluster.leadership.shrink(log_end=cluster.log_end, now_ms=cluster.now_ms)
    assert late is not None
    assert cluster.confirm(late)
    assert cluster.leadership.isr == {LEADER, SECOND}
    assert cluster.leadership.is_under_replicated


def test_a_follower_joins_when_it_has_all_of_the_present_epoch(cluster: Cluster) -> None:
    """Above the high watermark is not enough: the epoch begins at the log end of its leader."""
    cluster.append(10)
    cluster.lead(isr=(LEADER, SECOND))
    cluster.fetch(SECOND, 5)
    assert cluster.fetch(THIRD, 9) is None
    change = cluster.fetch(THIRD, 10)
    assert change == IsrChange(
        isr={LEADER: 100, SECOND: 200, THIRD: 300},
        leader_epoch=LeaderEpoch(5),
        partition_epoch=10,
        joining=THIRD,
    )
    assert cluster.leadership.isr == {LEADER, SECOND}
    assert cluster.confirm(change)
    assert cluster.leadership.isr == {LEADER, SECOND, THIRD}


def test_a_proposed_member_counts_at_once(cluster: Cluster) -> None:
    """The controller may have let it in, and may elect it, before the leader hears of that."""
    cluster.lead(isr=(LEADER, SECOND))
    cluster.fetch(SECOND, 0)
    assert cluster.fetch(THIRD, 0) is not None
    cluster.now_ms += LAG_MS + 1
    cluster.append(5)
    cluster.fetch(SECOND, 5)
    assert cluster.watermark == 0
    assert cluster.leadership.member_count == 3
    cluster.fetch(THIRD, 5)
    assert cluster.watermark == 5


def test_one_change_is_asked_for_at_a_time(cluster: Cluster) -> None:
    """Neither another follower nor a late member is proposed meanwhile."""
    cluster.lead(isr=(LEADER,))
    assert cluster.fetch(SECOND, 0) is not None
    assert cluster.fetch(THIRD, 0) is None
    cluster.now_ms += LAG_MS + 1
    assert cluster.shrink() is None


@pytest.mark.parametrize("reason", ["fenced", "shutting down", "restarted"])
def test_who_may_not_join_is_not_proposed(cluster: Cluster, reason: str) -> None:
    """A broker that is fenced, in controlled shutdown, or registered again since its fetch."""
    cluster.lead(isr=(LEADER,))
    if reason == "fenced":
        del cluster.alive[SECOND]
    elif reason == "shutting down":
        cluster.shutting_down.add(SECOND)
    if reason == "restarted":
        assert cluster.fetch(SECOND, 0, epoch=201) is None
        cluster.alive[SECOND] = 201
    else:
        assert cluster.fetch(SECOND, 0, epoch=200) is None
        cluster.shutting_down.clear()
        cluster.alive[SECOND] = 200
    assert cluster.leadership.expand(SECOND, high_watermark=cluster.watermark) is not None


def test_a_follower_that_may_not_join_does_not_hold_the_watermark(cluster: Cluster) -> None:
    """One that keeps up does, since it is about to join; a fenced one is not."""
    cluster.lead(isr=(LEADER,))
    cluster.fetch(SECOND, 0)
    cluster.leadership.reject(
        cluster.leadership.proposed or pytest.fail("none"), ErrorCode.INELIGIBLE_REPLICA
    )
    cluster.append(5)
    assert cluster.watermark == 0
    del cluster.alive[SECOND]
    cluster.move()
    assert cluster.watermark == 5


def test_a_member_that_the_controller_takes_out_does_not_hold_the_watermark(
    cluster: Cluster,
) -> None:
    """Its log directory has failed, and its broker is alive: acks=all does not wait for the lag."""
    cluster.lead()
    cluster.append(1)
    cluster.fetch(SECOND, 1)
    cluster.fetch(THIRD, 1)
    cluster.append(1)
    cluster.fetch(SECOND, 2)
    assert cluster.watermark == 1
    cluster.lead(isr=(LEADER, SECOND), partition_epoch=11)
    assert cluster.watermark == 2
    # It is another matter once it fetches again: it is about to join.
    cluster.fetch(THIRD, 2)
    cluster.append(1)
    cluster.fetch(SECOND, 3)
    assert cluster.watermark == 2


def test_a_fetch_from_before_a_restart_is_refused(cluster: Cluster) -> None:
    """The follower may have lost since what it had then; epoch -1 is not checked."""
    cluster.lead()
    with pytest.raises(StaleFollowerError, match="registered with epoch 200"):
        cluster.fetch(SECOND, 0, epoch=199)
    cluster.fetch(SECOND, 0, epoch=-1)


def test_a_fetch_of_no_replica_is_refused(cluster: Cluster) -> None:
    """The reassignment that makes it one may be on its way."""
    cluster.lead()
    with pytest.raises(NotReplicaError, match="broker 9 is not a replica"):
        cluster.fetch(9, 0)


def test_members_that_do_not_keep_up_are_left_out(cluster: Cluster) -> None:
    """After `replica.lag.time.max.ms`; they count until the controller has agreed."""
    cluster.lead()
    cluster.fetch(SECOND, 0)
    cluster.append(5)
    cluster.now_ms += LAG_MS
    cluster.fetch(SECOND, 5)
    assert cluster.shrink() is None
    cluster.now_ms += 1
    change = cluster.shrink()
    assert change is not None
    assert change.isr == {LEADER: 100, SECOND: 200}
    cluster.move()
    assert cluster.watermark == 0
    cluster.confirm(change)
    assert cluster.watermark == 5


def test_a_member_that_has_the_log_end_keeps_up(cluster: Cluster) -> None:
    """However long ago it has fetched: there is nothing that it lacks."""
    cluster.lead(isr=(LEADER, SECOND))
    cluster.append(5)
    cluster.fetch(SECOND, 5)
    cluster.now_ms += 10 * LAG_MS
    assert cluster.shrink() is None


def test_a_member_keeps_up_with_what_there_was_at_its_last_fetch(cluster: Cluster) -> None:
    """Under steady load it never has the newest record, and is in sync all the same."""
    cluster.lead(isr=(LEADER, SECOND))
    for end in range(100, 1000, 100):
        cluster.append(100)
        cluster.now_ms += LAG_MS // 2
        cluster.fetch(SECOND, end - 100)
        assert cluster.shrink() is None
    cluster.append(100)
    cluster.now_ms += LAG_MS
    cluster.fetch(SECOND, 801)
    assert cluster.shrink() is not None


def test_a_new_member_has_the_whole_lag_to_fetch(cluster: Cluster) -> None:
    """From the beginning of the epoch on, at whatever time that is."""
    cluster.append(1)
    cluster.lead()
    cluster.now_ms += LAG_MS
    assert cluster.shrink() is None
    cluster.now_ms += 1
    assert cluster.shrink() is not None


@pytest.mark.parametrize(("epoch", "watermark"), [(6, 10), (7, 5)])
def test_followers_of_another_leader_count_from_their_next_fetch(
    cluster: Cluster, epoch: int, watermark: int
) -> None:
    """They have cut their logs to its own, if another broker has led between two images."""
    cluster.lead()
    cluster.append(10)
    cluster.fetch(SECOND, 5)
    cluster.fetch(THIRD, 10)
    cluster.lead(epoch=epoch, partition_epoch=20)
    cluster.fetch(SECOND, 10)
    assert cluster.watermark == watermark
    cluster.fetch(THIRD, 10)
    assert cluster.watermark == 10


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_change_that_was_not_made_is_undone(cluster: Cluster, code: ErrorCode) -> None:
    """The controller says that none has made it: the old ISR counts, and it is tried again."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    assert cluster.leadership.reject(change, code) is Rejection.UNDONE
    assert cluster.leadership.member_count == 2
    assert cluster.fetch(THIRD, 0) is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_an_outdated_change_waits_for_the_image(cluster: Cluster, code: ErrorCode) -> None:
    """It is not sent again, and its member counts until a newer state of the partition comes."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    assert cluster.leadership.reject(change, code) is Rejection.WAIT
    assert cluster.leadership.member_count == 3
    cluster.lead(isr=(LEADER, SECOND), partition_epoch=11)
    assert cluster.leadership.member_count == 2


def test_an_unexpected_error_is_tried_again(cluster: Cluster) -> None:
    """Whether the change was made is not known: what it proposes counts on."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.leadership.reject(change, code) is Rejection.AGAIN
    assert cluster.leadership.proposed is change
    assert cluster.leadership.member_count == 3


def test_an_answer_after_a_newer_image_changes_nothing(cluster: Cluster) -> None:
    """Neither its ISR nor its error; the image has seen the change, or refused it."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    cluster.lead(isr=(LEADER,), partition_epoch=12)
    assert not cluster.confirm(change)
    assert cluster.leadership.reject(change, ErrorCode.INELIGIBLE_REPLICA) is Rejection.WAIT
    assert cluster.leadership.isr == {LEADER}


def test_an_answer_before_the_image_makes_that_one_no_news(cluster: Cluster) -> None:
    """The image repeats the partition epoch, and an older one that comes late is passed over."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    assert cluster.confirm(change)
    cluster.lead(isr=(LEADER, SECOND), partition_epoch=10)
    assert cluster.leadership.isr == {LEADER, SECOND, THIRD}
    cluster.lead(isr=(LEADER, SECOND, THIRD), partition_epoch=11)
    assert cluster.leadership.isr == {LEADER, SECOND, THIRD}


def test_the_image_of_a_confirmed_change_ends_no_later_one(cluster: Cluster) -> None:
    """It comes after the answer, when the leader may have proposed another member already."""
    cluster.lead(isr=(LEADER,))
    first = cluster.fetch(SECOND, 0)
    assert first is not None
    cluster.confirm(first)
    assert cluster.fetch(THIRD, 0) is not None
    cluster.lead(isr=(LEADER, SECOND), partition_epoch=11)
    cluster.now_ms += LAG_MS + 1
    cluster.append(1)
    cluster.fetch(SECOND, 1)
    assert cluster.watermark == 0


def test_an_answer_of_another_leader_epoch_changes_nothing(cluster: Cluster) -> None:
    """This broker does not lead in it yet, or no more."""
    cluster.lead(isr=(LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    assert not cluster.confirm(change, epoch=6)
    assert cluster.leadership.isr == {LEADER, SECOND}


@pytest.mark.parametrize("isr", [(LEADER, SECOND, 77), (SECOND, THIRD), (77,), ()])
def test_an_isr_that_cannot_be_this_leaders_is_not_taken(
    cluster: Cluster, isr: tuple[int, ...]
) -> None:
    """A member that is no replica would be in sync without a record; the image says what counts."""
    cluster.lead((LEADER, SECOND))
    change = cluster.fetch(THIRD, 0)
    assert change is not None
    taken = cluster.leadership.confirm(change, isr, leader_epoch=5, partition_epoch=11)
    assert not taken
    assert cluster.leadership.isr == {LEADER, SECOND}
    assert cluster.leadership.proposed is change


def test_the_progress_of_followers_survives_a_change_of_the_assignment(cluster: Cluster) -> None:
    """They keep it within a leader epoch; a broker that is no replica any more is dropped."""
    cluster.append(5)
    assert cluster.lead()
    cluster.fetch(SECOND, 5)
    assert not cluster.lead(replicas=(LEADER, SECOND), isr=(LEADER, SECOND), partition_epoch=11)
    assert cluster.watermark == 5
    assert cluster.leadership.followers.keys() == {SECOND}
    assert cluster.leadership.followers[SECOND].log_end == 5


def test_a_new_leader_knows_nothing_of_its_followers(cluster: Cluster) -> None:
    """Until each has fetched, the high watermark stays where it is."""
    cluster.append(5)
    cluster.lead()
    assert cluster.leadership.followers[SECOND].log_end == UNKNOWN
    assert cluster.watermark == 0


def test_deleted_records_are_gone_where_all_who_are_alive_have_deleted_them(
    cluster: Cluster,
) -> None:
    """The low watermark of DeleteRecords passes over a fenced follower."""
    cluster.append(9)
    cluster.lead(isr=(LEADER, SECOND))
    cluster.fetch(SECOND, 9)
    assert cluster.leadership.low_watermark(Offset(4)) == UNKNOWN
    del cluster.alive[THIRD]
    assert cluster.leadership.low_watermark(Offset(4)) == 0
