"""Some seconds of chaos under groups leave histories without anomalies."""

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tailrace import Admin, Producer
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.testing import TestBroker
from tests.chaos.brokers import settings_of
from tests.chaos.clocks import ShiftedClock
from tests.chaos.fleet import Berth, Fleet
from tests.chaos.groups import faults_of_giving_up, run
from tests.chaos.java import compile_member
from tests.chaos.life import EVENTS, RESULTS, Plan, Role
from tests.histories.history import Poll, read_histories

pytestmark = pytest.mark.wire

SECONDS = 6
WAITS_S = 120
CLUSTER_SECONDS = 30


def berth(
    folder: Path,
    role: Role,
    client: str,
    *,
    name: str = "consumer",
    bootstrap: str = "",
    partition_count: int = 1,
) -> Berth:
    """A client of the group `g`, with its histories in a folder."""
    return Berth(
        Plan(
            process="",
            role=role.value,
            client=client,
            name=name,
            group="g",
            is_committed=role is Role.TRANSFORMER,
            bootstrap=bootstrap,
            folder=str(folder),
            seed=1,
            partition_count=partition_count,
            timeout_ms=1000,
        ),
        folder,
    )


def wait_for_commits(broker: TestBroker, offset: int, *wanted: TopicPartition) -> None:
    """Wait until the group `g` has committed an offset in each of these partitions."""
    pause, deadline = threading.Event(), time.monotonic() + WAITS_S
    while any(broker.committed_offsets("g").get(each, 0) < offset for each in wanted):
        assert time.monotonic() < deadline, f"nobody has committed {offset} in all of {wanted}"
        pause.wait(0.1)


def test_groups_of_a_broker_that_is_killed_and_paused_read_what_they_should(
    tmp_path: Path,
) -> None:
    """No client sees an anomaly, and every group comes to the end of its topic."""
    result = run(SECONDS, 7, tmp_path)
    assert not result.faults
    assert not result.report.anomalies, "\n".join(map(str, result.report.anomalies[:5]))
    assert result.report.figures["sends ok"] > 100
    assert result.report.figures["records polled"] > 300
    assert result.counts.total() > 3


@pytest.mark.slow
def test_groups_of_three_brokers_in_trouble_read_what_they_should(tmp_path: Path) -> None:
    """No client sees an anomaly, the replicas are equal at the end, and no broker logs an error."""
    result = run(CLUSTER_SECONDS, 7, tmp_path, is_cluster=True)
    assert not result.faults
    assert not result.report.anomalies, "\n".join(map(str, result.report.anomalies[:5]))
    assert result.report.figures["sends ok"] > 300
    assert result.report.figures["watermarks ok"] > 30
    assert sum(n for name, n in result.counts.items() if name.startswith("broker")) > 3


@pytest.mark.parametrize("protocol", ["consumer", "cooperative"])
def test_a_consumer_that_will_never_read_again_is_replaced(tmp_path: Path, protocol: str) -> None:
    """After NOT_COORDINATOR librdkafka sends no OffsetFetch any more; its next process does."""
    with TestBroker(settings=settings_of(1000)) as broker:
        broker.create_topic(EVENTS)
        broker.produce(EVENTS, "value")
        broker.fail("OffsetFetch", error="NOT_COORDINATOR", times=1)
        client = berth(
            tmp_path,
            Role.CONSUMER,
            f"confluent-{protocol}",
            bootstrap=broker.bootstrap_servers,
        )
        fleet = Fleet([client], Random(0))
        try:
            fleet.start()
            assert client.wait(time.monotonic() + 60), "it still polls, and was killed"
            assert fleet.gave_up() == {"NOT_COORDINATOR": 1}
            fleet.revive(Role.CONSUMER)
            wait_for_commits(broker, 1, TopicPartition(EVENTS, 0))
            assert broker.committed_offsets("g") == {TopicPartition(EVENTS, 0): 1}
            assert fleet.gave_up().total() == 1
        finally:
            fleet.kill()


def test_a_transformer_waits_for_an_undecided_offset_over_a_rebalance(tmp_path: Path) -> None:
    """It begins at the offset of the transaction, where librdkafka alone begins at 0."""
    with TestBroker(settings=settings_of(1000)) as broker:
        broker.create_topic(EVENTS, partitions=3)
        broker.create_topic(RESULTS, partitions=3)
        partitions = [TopicPartition(EVENTS, each) for each in range(3)]
        for each in partitions * 10:
            broker.produce(EVENTS, "value", partition=each.partition)
        with Admin(broker.client_settings()) as admin:
            admin.alter_group_offsets("g", dict.fromkeys(partitions, 5))
        asked = broker.delay("OffsetFetch", seconds=0)
        berths = [
            berth(
                tmp_path,
                Role.TRANSFORMER,
                "confluent",
                name=name,
                bootstrap=broker.bootstrap_servers,
                partition_count=3,
            )
            for name in ("first", "second")
        ]
        fleet = Fleet(berths, Random(0))
        settings = broker.client_settings() | {
            "transactional.id": "undecided",
            "transaction.timeout.ms": 4000 * WAITS_S,
        }
        try:
            with Producer(settings) as producer, producer.transaction():
                producer.send_offsets_to_transaction({partitions[1]: 7}, "g")
                berths[0].start()
                asked.wait(timeout_s=WAITS_S)
                # The assignor range leaves 0 and 1 to the first, and gives 2 to the second.
                berths[1].start()
                wait_for_commits(broker, 10, partitions[2])
                asked.wait(asked.count + 5, timeout_s=WAITS_S)
            wait_for_commits(broker, 10, *partitions)
        finally:
            fleet.kill()
    polled = [
        record.offset
        for each in read_histories(tmp_path)
        if isinstance(each.action, Poll)
        for record in each.action.records
        if record.partition == str(partitions[1])
    ]
    assert min(polled) == 7


def test_clients_that_give_up_too_often_or_for_a_wrong_answer_are_a_fault() -> None:
    """Our broker may not say that another one coordinates a group; Apache Kafka does."""
    loading = Counter(COORDINATOR_LOAD_IN_PROGRESS=2)
    assert faults_of_giving_up(loading, 6, is_kafka=False) == []
    assert len(faults_of_giving_up(loading + loading, 6, is_kafka=False)) == 1
    assert faults_of_giving_up(loading + loading, 60, is_kafka=False) == []
    assert faults_of_giving_up(Counter(_TRANSPORT=9), 6, is_kafka=False) == []
    elsewhere = Counter(NOT_COORDINATOR=1)
    assert len(faults_of_giving_up(elsewhere, 6, is_kafka=False)) == 1
    assert faults_of_giving_up(elsewhere, 6, is_kafka=True) == []


def test_a_client_of_ours_that_an_exception_ends_is_a_fault(tmp_path: Path) -> None:
    """The run would otherwise start another one, and nobody would hear of it."""
    client = berth(tmp_path, Role.CONSUMER, "ours-and-unknown")
    fleet = Fleet([client], Random(0))
    fleet.start()
    assert client.wait(time.monotonic() + 60)
    assert fleet.crashed() == ["consumer was ended by an exception: KeyError: 'ours-and-unknown'"]


def test_a_run_with_java_says_what_is_missing_for_it(tmp_path: Path) -> None:
    """It is not left out in silence where there is no Java, no compiler or no Maven."""
    with pytest.raises(FatalError, match="install"):
        compile_member(tmp_path, {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})


def test_the_time_of_day_of_a_process_can_be_set(tmp_path: Path) -> None:
    """It jumps in both directions while the process runs; its monotonic clock goes on."""
    clock = ShiftedClock.compile(tmp_path)
    if clock is None:
        pytest.skip("needs a C compiler: install gcc")
    program = """
import time
while input():
    print(time.time(), time.time_ns() / 1e9, time.monotonic(), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment,
    ) as process:

        def read(shift_s: float) -> list[float]:
            assert process.stdin is not None
            assert process.stdout is not None
            clock.set(shift_s)
            process.stdin.write("read\n")
            process.stdin.flush()
            return list(map(float, process.stdout.readline().split()))

        (now, _, begin), (later, later_ns, _), (back, _, end) = read(0), read(7200), read(-7200)
        process.kill()
    assert 7200 <= later - now < 7230
    assert abs(later - later_ns) < 1
    assert -7200 <= back - now < -7170
    assert begin <= end < begin + 30
