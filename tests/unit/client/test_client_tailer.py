"""A tailer of partitions, whose logs grow, whose nodes die, and whose leaders move."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from tailrace.client import ClusterReader, UnreachableBrokerError
from tailrace.client.tailer import Tailer
from tailrace.errors import OffsetOutOfRangeError, RetriableError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.testing.script import FaultKind
from tests.unit.client.reading import FLIGHTS, ReadableCluster, reader, waiting_world

READ_COMMITTED = IsolationLevel.READ_COMMITTED


@contextmanager
def stage(*, nodes: int = 2) -> Iterator[tuple[ReadableCluster, ClusterReader]]:
    """A cluster whose `flights-0` has offsets 0 to 29 in three batches, and a client."""
    with waiting_world() as (outside, network):
        cluster = ReadableCluster(outside, nodes=nodes)
        cluster.start()
        for _ in range(3):
            cluster.flights.write(10)
        client = reader(outside, network, cluster.bootstrap)
        yield cluster, client
        client.close()


def values(tailer: Tailer, polls: int = 1) -> list[int]:
    """The values that some polls give; those of `ReadableLog` are offsets."""
    return [
        int(record.value or b"")
        for _ in range(polls)
        for each in tailer.poll(0.5)
        for record, _ in each.records()
    ]


def without_records(answer: FetchResponse) -> FetchResponse:
    """The answer of a broker whose remote storage is slow: no error, and no records."""
    return replace(
        answer,
        responses=tuple(
            replace(
                topic, partitions=tuple(replace(each, records=None) for each in topic.partitions)
            )
            for topic in answer.responses
        ),
    )


@pytest.mark.parametrize("count", [1, 3])
def test_a_slow_remote_storage_ends_no_range(count: int) -> None:
    """An answer without records of what the broker has elsewhere is no end; it is asked again."""
    with stage() as (cluster, client):
        cluster.flights.local_start = 20
        cluster.script.add(ApiKey.FETCH, FaultKind.EDIT, edit=without_records, skip=1, times=count)
        tailer = Tailer(client, {FLIGHTS: 0}, limits={FLIGHTS: 30}, fetch_bytes=1)
        found: list[int] = []
        while not tailer.is_over:
            found += values(tailer)
        assert found == list(range(30))


def test_a_follower_reads_up_to_its_limit_and_is_over() -> None:
    """It begins and ends in the middle of batches, and asks for nothing afterwards."""
    with stage() as (cluster, client):
        tailer = Tailer(client, {FLIGHTS: 5}, limits={FLIGHTS: 25})
        assert values(tailer) == [*range(5, 25)]
        assert tailer.is_over
        assert cluster.count(ApiKey.FETCH) == 1


def test_a_follower_without_a_limit_gets_what_comes_later() -> None:
    """A poll without news returns nothing, and the next one has the new records."""
    with stage() as (cluster, client):
        tailer = Tailer(client, {FLIGHTS: 0})
        assert values(tailer) == [*range(30)]
        cluster.flights.write(5)
        assert values(tailer, polls=3) == [*range(30, 35)]
        assert not tailer.is_over


def test_the_next_fetch_is_under_way_when_records_are_given_out() -> None:
    """The broker works while the caller does; never more than one fetch ahead."""
    with stage() as (cluster, client):
        tailer = Tailer(client, {FLIGHTS: 0}, fetch_bytes=1)
        for number in range(1, 3):
            assert len(values(tailer)) == 10
            client.retrying(lambda: client.leader(FLIGHTS).reader.pause(1))
            assert cluster.count(ApiKey.FETCH) == number + 1


def test_a_leader_that_moves_loses_and_repeats_nothing() -> None:
    """The tailer goes on at the new leader, at the position that it had."""
    with stage() as (cluster, client):
        tailer = Tailer(client, {FLIGHTS: 0}, limits={FLIGHTS: 30}, fetch_bytes=1)
        found = values(tailer)
        cluster.kill(1)
        while not tailer.is_over:
            found += values(tailer)
        assert found == [*range(30)]


def test_a_follower_can_be_polled_again_after_an_error() -> None:
    """When no node is left, the error is raised; when they are back, nothing is missing."""
    with stage() as (cluster, client):
        tailer = Tailer(client, {FLIGHTS: 0}, limits={FLIGHTS: 30}, fetch_bytes=1)
        found = values(tailer)
        cluster.kill(1)
        cluster.kill(2)
        with pytest.raises(UnreachableBrokerError):
            tailer.poll(0.5)
        cluster.heal()
        while not tailer.is_over:
            found += values(tailer)
        assert found == [*range(30)]


def test_lost_answers_are_asked_for_again() -> None:
    """A connection that breaks between request and answer costs nothing."""
    with stage() as (cluster, client):
        cluster.script.add(ApiKey.FETCH, FaultKind.CUT_AFTER, times=3)
        tailer = Tailer(client, {FLIGHTS: 0}, limits={FLIGHTS: 30})
        assert values(tailer) == [*range(30)]


def test_an_offset_that_the_log_does_not_have_is_told_with_its_range() -> None:
    """The error names the partition and both ends."""
    with stage() as (_, client):
        tailer = Tailer(client, {FLIGHTS: 99})
        with pytest.raises(OffsetOutOfRangeError, match=r"99 is not in flights-0, .* 0 to 30"):
            tailer.poll(0.5)


def test_readers_of_committed_records_see_no_aborted_ones() -> None:
    """Nothing of an aborted transaction, no marker, and nothing behind an open one."""
    with stage() as (cluster, client):
        cluster.flights.write(5, producer_id=7)
        cluster.flights.finish(7, is_commit=False)
        cluster.flights.write(5, producer_id=8)
        cluster.flights.finish(8, is_commit=True)
        cluster.flights.write(5, producer_id=9)
        end = cluster.flights.end_for(READ_COMMITTED)
        tailer = Tailer(client, {FLIGHTS: 25}, limits={FLIGHTS: end}, isolation=READ_COMMITTED)
        assert values(tailer) == [*range(25, 30), *range(36, 41)]
        assert tailer.is_over


def test_a_position_passes_batches_that_are_left_out() -> None:
    """A tailer whose range has only aborted records ends."""
    with stage() as (cluster, client):
        cluster.flights.write(5, producer_id=7)
        cluster.flights.finish(7, is_commit=False)
        tailer = Tailer(client, {FLIGHTS: 30}, limits={FLIGHTS: 36}, isolation=READ_COMMITTED)
        (fetched,) = tailer.poll(0.5)
        assert [*fetched.records()] == []
        assert (fetched.next_offset, tailer.is_over) == (36, True)


@pytest.mark.parametrize("version", [7, 9])
def test_a_log_whose_last_records_were_compacted_away_ends(version: int) -> None:
    """If nothing is left between the position and the end, there is nothing to wait for."""
    with stage() as (cluster, client):
        # Before version 8 there is no question for remote storage, which was not there.
        cluster.versions[ApiKey.LIST_OFFSETS] = version
        tailer = Tailer(client, {FLIGHTS: 10}, limits={FLIGHTS: 30})
        after, last = cluster.flights.batches[-1]
        cluster.flights.batches[1:] = [(after, b"")]
        assert last
        assert values(tailer) == []
        assert tailer.is_over


def test_partitions_that_begin_at_their_limit_are_over() -> None:
    """An empty range asks nobody."""
    with stage() as (cluster, client):
        assert Tailer(client, {FLIGHTS: 30}, limits={FLIGHTS: 30}).is_over
        assert cluster.count(ApiKey.FETCH) == 0


@pytest.mark.parametrize("trouble", ["silent", "killed", "leaderless"])
def test_a_partition_that_cannot_be_read_holds_up_no_other(trouble: str) -> None:
    """Its error is raised after some attempts, and each poll before and after has the others."""
    with stage() as (cluster, client):
        cluster.create_topic("quiet")
        quiet = TopicPartition("quiet", 0)
        cluster.move(FLIGHTS, 2)
        tailer = Tailer(client, {quiet: 0, FLIGHTS: 0})
        if trouble == "silent":
            cluster.nodes[1].is_paused = True
        elif trouble == "killed":
            cluster.nodes[1].kill()
        else:
            cluster.move(quiet, -1)
        found = values(tailer, polls=8)
        assert found == [*range(30)]
        loop, longest_s = cluster.outside.loop, 0.0
        errors: list[str] = []
        while len(errors) < 2:
            assert loop.time() < 50
            cluster.flights.write(5)
            client.pause(1)
            began = loop.time()
            try:
                found += values(tailer)
            except RetriableError as error:
                errors.append(str(error))
            longest_s = max(longest_s, loop.time() - began)
        found += values(tailer, polls=2)
        assert found == [*range(cluster.flights.end)]
        # Twice 2 s for the metadata of a leader that a silent broker might know.
        assert longest_s < 5
        assert ("bootstrap server" if trouble == "silent" else "quiet-0") in errors[0]


@pytest.mark.parametrize("limit", [None, 30])
def test_an_answer_of_the_old_leader_and_of_the_new_one_count_once(limit: int | None) -> None:
    """The leader moves while the old one's answer is on its way, and the new one is asked too."""
    with stage() as (cluster, client):
        cluster.create_topic("flights", partitions=2)
        other = TopicPartition("flights", 1)
        cluster.move(FLIGHTS, 2)
        cluster.move(other, 1)
        cluster.script.add(ApiKey.FETCH, FaultKind.DELAY, delay_s=1.5, skip=1)
        limits = {} if limit is None else {FLIGHTS: limit}
        tailer = Tailer(client, {FLIGHTS: 0, other: 0}, limits=limits)
        # The answer about the other partition cannot be used. The next question about its leader
        # tells the new leader of this one too.
        assert values(tailer) == []
        client.pause(0.1)
        cluster.move(FLIGHTS, 1)
        found: list[int] = []
        while client.clock() < 3:
            with suppress(RetriableError):
                found += values(tailer)
            client.pause(0.1)
        assert found == [*range(30)]


def test_partitions_without_leaders_share_a_question() -> None:
    """A poll asks once about their topic, and not once for each of them."""
    with stage() as (cluster, client):
        cluster.create_topic("quiet", partitions=20)
        quiet = [TopicPartition("quiet", number) for number in range(20)]
        for each in quiet:
            cluster.move(each, -1)
        tailer = Tailer(client, {**dict.fromkeys(quiet, 0), FLIGHTS: 0})
        assert values(tailer) == [*range(30)]
        # About each of the two topics; and again for the next fetch, which takes what is known.
        assert cluster.count(ApiKey.METADATA) <= 4


def test_a_poll_waits_while_no_partition_may_be_asked() -> None:
    """It takes its time and not the processor's, although no answer is under way."""
    with stage() as (cluster, client):
        cluster.create_topic("quiet")
        quiet = TopicPartition("quiet", 0)
        cluster.move(quiet, -1)
        tailer = Tailer(client, {quiet: 0, FLIGHTS: 0}, limits={FLIGHTS: 30})
        assert values(tailer) == [*range(30)]
        began = client.clock()
        assert tailer.poll(0.2) == []
        assert client.clock() == pytest.approx(began + 0.2)
