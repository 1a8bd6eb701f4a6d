"""A reader against a cluster in which leaders move, nodes die and connections break."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client import (
    ClusterReader,
    RemoteRetriableError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
    fetch_batches,
)
from tailrace.errors import ConfigError, CorruptionError, OffsetOutOfRangeError
from tailrace.model import IsolationLevel, SpecialTimestamp
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.testing.script import FaultKind
from tests.unit.client.reading import FLIGHTS, LoopNetwork, ReadableCluster, reader, waiting_world

READ_COMMITTED = IsolationLevel.READ_COMMITTED


@contextmanager
def stage(*, nodes: int = 2, batches: int = 6) -> Iterator[tuple[ReadableCluster, ClusterReader]]:
    """A cluster whose `flights-0` has batches of ten records, and a reader."""
    with waiting_world() as (outside, network):
        cluster = ReadableCluster(outside, nodes=nodes)
        cluster.start()
        for _ in range(batches):
            cluster.flights.write(10)
        client = reader(outside, network, cluster.bootstrap)
        yield cluster, client
        client.close()


def fetched(
    client: ClusterReader,
    start: int,
    limit: int,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Iterator[Batch]:
    """The batches of a range, each from an answer of its own."""
    return fetch_batches(
        client, FLIGHTS, start_offset=start, limit_offset=limit, isolation=isolation, fetch_bytes=1
    )


def values(batches: Iterator[Batch]) -> list[int]:
    """The values of records, without control records; those of `ReadableLog` are offsets."""
    return [
        int(record.value or b"")
        for batch in batches
        if not batch.is_control
        for record in records_of(batch)
    ]


def test_the_next_fetch_is_under_way_while_the_caller_is_busy() -> None:
    """One is ahead of the caller, and never two; none goes beyond the limit."""
    with stage() as (cluster, client):
        found = fetched(client, 0, 60)
        for number in range(1, 7):
            assert next(found).base_offset == 10 * (number - 1)
            client.retrying(lambda: client.leader(FLIGHTS).reader.pause(1))
            assert cluster.count(ApiKey.FETCH) == min(number + 1, 6)
        assert next(found, None) is None
        assert cluster.count(ApiKey.FETCH) == 6


def test_a_limit_inside_of_a_batch_ends_with_that_batch() -> None:
    """Batches after the limit are neither returned nor fetched."""
    with stage() as (cluster, client):
        assert values(fetched(client, 15, 25)) == list(range(10, 30))
        assert cluster.count(ApiKey.FETCH) == 2


DISTURBANCES: list[Callable[[ReadableCluster], None]] = [
    lambda cluster: cluster.move(FLIGHTS, 2),
    lambda cluster: cluster.kill(1),
    lambda cluster: cluster.script.add(ApiKey.FETCH, FaultKind.CUT),
    lambda cluster: cluster.script.add(ApiKey.FETCH, FaultKind.CUT_AFTER),
    lambda cluster: cluster.script.add(ApiKey.FETCH, FaultKind.LOSE),
    lambda cluster: cluster.script.add(ApiKey.FETCH, FaultKind.GARBAGE),
    lambda cluster: cluster.script.add(ApiKey.FETCH, FaultKind.TWICE),
    lambda cluster: cluster.script.add(ApiKey.METADATA, FaultKind.CUT, times=2),
]


@pytest.mark.parametrize("disturb", DISTURBANCES)
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_range_is_whole_and_in_order_whatever_happens(
    disturb: Callable[[ReadableCluster], None],
    after: int,
    is_ahead: bool,  # noqa: FBT001
) -> None:
    """A leader that moves or dies, bytes that are lost, broken off or garbage: each batch once.

    Whether the next answer is there already or not.
    """
    with stage() as (cluster, client):
        found = fetched(client, 0, 60)
        first = [next(found).base_offset for _ in range(after)]
        if is_ahead:
            client.leader(FLIGHTS).reader.pause(1)
        disturb(cluster)
        assert first + [each.base_offset for each in found] == [0, 10, 20, 30, 40, 50]


def test_a_throttled_reader_waits_but_its_batches_do_not() -> None:
    """A broker's throttle holds up the next fetch, not the batch that came with it."""
    with stage() as (cluster, client):
        cluster.script.add(
            ApiKey.FETCH, FaultKind.EDIT, edit=lambda answer: replace(answer, throttle_time_ms=7000)
        )
        found = fetched(client, 0, 20)
        assert next(found).base_offset == 0
        assert cluster.outside.loop.time() < 1
        assert next(found).base_offset == 10
        assert 7 <= cluster.outside.loop.time() < 8


def test_a_reader_that_stops_early_leaves_the_connection_in_order() -> None:
    """The answer to a fetch ahead is not taken for that of the next request."""
    with stage() as (cluster, client):
        found = fetched(client, 0, 60)
        next(found)
        found.close()  # type: ignore[attr-defined]
        assert client.log_range(FLIGHTS) == (0, 60)
        assert values(fetched(client, 50, 60)) == list(range(50, 60))
        assert len(cluster.nodes[1].channels) == 1


def test_a_closed_reader_connects_again_when_asked() -> None:
    """`close` ends the connections, not the reader; a range goes on."""
    with stage() as (cluster, client):
        found = fetched(client, 0, 60)
        next(found)
        client.close()
        assert values(found) == list(range(10, 60))
        assert len(cluster.outside.network.connections) == 2


def test_a_broker_of_the_list_that_leads_is_asked_over_one_connection() -> None:
    """Metadata and records come over the same one."""
    with stage(nodes=1) as (cluster, client):
        assert values(fetched(client, 0, 60)) == list(range(60))
        assert len(cluster.outside.network.connections) == 1


def test_statistics_tell_the_connections_of_a_reader() -> None:
    """None before the first question and after `close`; in between those that it has opened."""
    with stage(nodes=2) as (_, client):
        assert client.statistics().nodes == {}
        client.partitions()
        (found,) = client.statistics().nodes.values()
        assert (found.is_ready, found.in_flight_count, found.failure) == (True, 0, None)
        client.close()
        assert client.statistics().nodes == {}


def test_a_partition_without_a_leader_is_told_after_some_attempts() -> None:
    """The attempts are bounded, and so is the time."""
    with stage() as (cluster, client):
        cluster.move(FLIGHTS, -1)
        with pytest.raises(RemoteRetriableError, match=r"flights-0.*LEADER_NOT_AVAILABLE"):
            client.log_range(FLIGHTS)
        assert cluster.outside.loop.time() < 10


def test_a_silent_broker_is_given_up_in_time() -> None:
    """Each attempt takes the request's timeout, and the error names address and request."""
    with stage(nodes=1) as (cluster, _):
        client = reader(
            cluster.outside,
            LoopNetwork(cluster.outside),
            cluster.bootstrap,
            timeout_ms=700,
            settings={"retry.backoff.ms": 10, "retry_backoff_max_ms": 10},
        )
        cluster.script.add(ApiKey.METADATA, FaultKind.LOSE, times=100)
        with pytest.raises(UnreachableBrokerError, match="no answer to Metadata in time") as caught:
            client.partitions()
        assert caught.value.address == cluster.bootstrap
        assert 7 * 0.7 <= cluster.outside.loop.time() < 10
        client.close()


def test_a_broker_that_is_too_old_is_told_at_once() -> None:
    """No attempt follows the first."""
    with stage(nodes=1) as (cluster, client):
        cluster.versions[ApiKey.FETCH] = -1
        with pytest.raises(UnsupportedBrokerError, match="takes no version of Fetch"):
            next(fetched(client, 0, 60))
        assert cluster.outside.loop.time() < 1


def test_offsets_beyond_the_log_are_told_with_what_there_is() -> None:
    """The error has the log's range, also if the log start or end moved while it was read."""
    with stage() as (cluster, client):
        found = fetched(client, 0, 60)
        next(found)
        client.leader(FLIGHTS).reader.pause(1)
        del cluster.flights.batches[1:]
        next(found)  # was on its way already
        with pytest.raises(OffsetOutOfRangeError) as caught:
            next(found)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 10)


def with_records(records: bytes) -> Callable[[FetchResponse], Message]:
    """The same answer with other records."""

    def edit(answer: FetchResponse) -> Message:
        data = replace(answer.responses[0].partitions[0], records=records)
        topic = FetchableTopicResponse(topic=FLIGHTS.topic, partitions=(data,))
        return replace(answer, responses=(topic,))

    return edit


@given(st.binary(min_size=1, max_size=200), st.integers(8, 120), st.integers(0, 255))
def test_any_records_of_an_answer_end_in_batches_or_an_error(
    tail: bytes, position: int, value: int
) -> None:
    """Whatever a broker sends for records, a reader ends, and damage is never a batch.

    But for a first batch with another base offset, which no checksum covers.
    """
    with stage() as (cluster, client):
        data = bytearray(cluster.flights.batches[0][1] + tail)
        data[position] = value
        cluster.script.add(ApiKey.FETCH, FaultKind.EDIT, edit=with_records(bytes(data)))
        try:
            found = values(fetched(client, 0, 20))
        except (CorruptionError, RemoteRetriableError):
            return
        assert found == list(range(20))


def test_records_that_do_not_come_are_told_after_some_attempts() -> None:
    """A range that the log does not reach yet is an error that may pass, not a wait for ever."""
    with stage(batches=1) as (_, client):
        found = fetched(client, 0, 20)
        assert next(found).next_offset == 10
        with pytest.raises(RemoteRetriableError, match="no record of flights-0 from offset 10 on"):
            next(found)


def test_committed_records_end_at_the_last_stable_offset() -> None:
    """An open transaction bounds what LATEST is, and its records are not given."""
    with stage(batches=1) as (cluster, client):
        cluster.flights.write(5, producer_id=7)
        cluster.flights.write(5)
        latest = {FLIGHTS: int(SpecialTimestamp.LATEST)}
        assert client.list_offsets(latest) == {FLIGHTS: 20}
        assert client.list_offsets(latest, isolation=READ_COMMITTED) == {FLIGHTS: 10}
        assert client.log_range(FLIGHTS, isolation=READ_COMMITTED) == (0, 10)
        assert values(fetched(client, 0, 10, isolation=READ_COMMITTED)) == list(range(10))
        found = fetched(client, 0, 20, isolation=READ_COMMITTED)
        next(found)
        with pytest.raises(RemoteRetriableError, match="from offset 10 on"):
            next(found)


STEPS = st.lists(
    st.tuples(st.sampled_from(["plain", "write", "commit", "abort"]), st.integers(1, 3)),
    max_size=25,
)


@given(STEPS, st.integers(0, 20), st.integers(1, 2000))
def test_aborted_records_are_left_out_wherever_answers_begin(
    steps: list[tuple[str, int]], start: int, fetch_bytes: int
) -> None:
    """Only committed and non-transactional records are returned, in order."""
    with stage(batches=0) as (cluster, client):
        log = cluster.flights
        kept: list[int] = []
        undecided: dict[int, list[int]] = {}
        for what, producer_id in [*steps, ("plain", 1)]:
            offsets = [log.end, log.end + 1]
            if what == "plain":
                log.write(2)
                kept += offsets
            elif what == "write":
                log.write(2, producer_id=producer_id)
                undecided.setdefault(producer_id, []).extend(offsets)
            elif producer_id in undecided:
                log.finish(producer_id, is_commit=what == "commit")
                decided = undecided.pop(producer_id)
                kept += decided if what == "commit" else []
        end = log.end_for(READ_COMMITTED)
        batches = fetch_batches(
            client,
            FLIGHTS,
            start_offset=min(start, end),
            limit_offset=end,
            isolation=READ_COMMITTED,
            fetch_bytes=fetch_bytes,
        )
        found = [each for each in values(batches) if each >= start]
        assert found == [each for each in sorted(kept) if start <= each < end]


def test_control_batches_are_handed_out() -> None:
    """Control batches are returned under both isolation levels; the decoder skips them."""
    with stage(batches=0) as (cluster, client):
        cluster.flights.write(2, producer_id=1)
        cluster.flights.finish(1, is_commit=False)
        both = [list(fetched(client, 0, 3, isolation=each)) for each in IsolationLevel]
        assert [[batch.is_control for batch in each] for each in both] == [[False, True], [True]]


def test_settings_are_checked_together() -> None:
    """Unknown names, bad values and a bad list are one error, under Kafka's names."""
    with pytest.raises(ConfigError) as caught:
        ClusterReader("one", settings={"security_protocol": "SASL_SSL"})
    assert {each.split(":")[0] for each in caught.value.faults} == {
        "bootstrap.servers",
        "sasl.username",
    }
    with pytest.raises(ConfigError) as caught:
        ClusterReader("one:1", settings={"linger.ms": 5, "request.timeout.ms": "soon"})
    assert {each.split(":")[0] for each in caught.value.faults} == {
        "linger.ms",
        "request.timeout.ms",
    }


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        (SpecialTimestamp.MAX_TIMESTAMP, 6),
        (SpecialTimestamp.EARLIEST_LOCAL, 7),
        (SpecialTimestamp.LATEST_TIERED, 8),
        (SpecialTimestamp.EARLIEST_PENDING_UPLOAD, 10),
    ],
)
def test_a_reader_asks_no_broker_that_takes_a_special_timestamp_for_a_time(
    timestamp: SpecialTimestamp, version: int
) -> None:
    """An older broker would answer with the offset of a negative time (KIP-734, KIP-1005)."""
    with stage(nodes=1) as (cluster, client):
        assert client.log_range(FLIGHTS) == (0, 60)
        cluster.versions[ApiKey.LIST_OFFSETS] = version
        client.close()
        with pytest.raises(UnsupportedBrokerError, match=f"this needs version {version + 1}"):
            client.list_offsets({FLIGHTS: timestamp})
        cluster.versions[ApiKey.LIST_OFFSETS] = version + 1
        client.close()
        assert set(client.list_offsets({FLIGHTS: timestamp})) == {FLIGHTS}
