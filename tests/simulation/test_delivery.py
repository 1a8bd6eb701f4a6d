"""Records get into the log once and in order, whatever happens on the way."""

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, T1, Stage, check_empty, deliver, outcomes, play


def test_a_record_is_written_and_its_receipt_says_where() -> None:
    """One record is in the log, and the receipt has its offset and timestamp."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            receipt = producer.send("t", b"v", b"k", headers={"h": b"x"}, timestamp=12, partition=1)
            metadata = await receipt
            assert metadata == ("t", 1, 0, 12)
            (record,) = stage.cluster.log(partition=1).records
            assert record[:5] == (0, 12, b"k", b"v", (("h", b"x"),))
            check_empty(producer)

    play(main)


@pytest.mark.parametrize(
    "how", [FaultKind.CUT, FaultKind.CUT_AFTER, FaultKind.GARBAGE, FaultKind.TWICE, FaultKind.SWAP]
)
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_a_broken_connection_loses_and_repeats_nothing(how: FaultKind, skip: int) -> None:
    """Whatever breaks with several batches in flight, each record is written once, in order."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, how, skip=skip)
        await deliver(stage, 8)

    play(main)


@pytest.mark.parametrize("how", [FaultKind.LOSE, FaultKind.LOSE_REPLY])
def test_a_lost_answer_is_given_up_after_the_request_timeout(how: FaultKind) -> None:
    """Without an answer the batches are sent again, and known by the broker if it had them."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, how, skip=1)
        await deliver(stage, 6, request_timeout_ms=2000)
        assert 2 <= stage.now < 4

    play(main)


@pytest.mark.parametrize("hints", [True, False])
def test_a_new_leader_is_found_with_several_batches_in_flight(hints: bool) -> None:  # noqa: FBT001
    """Batches that went to the old leader are written by the new one, in order."""

    async def main(stage: Stage) -> None:
        stage.cluster.gives_hints = hints
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, 2)
            receipts = stage.send(producer, 6, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 6
        stage.check_log()
        assert stage.cluster.sent[-1].node_id == 2

    play(main, nodes=2)


def test_a_hint_of_the_new_leader_is_followed_at_once() -> None:
    """A refusal that names the new leader costs no pause (KIP-951)."""

    async def main(stage: Stage) -> None:
        async with stage.producer(retry_backoff_ms=500, retry_backoff_max_ms=500) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, 2)
            began = stage.now
            await stage.send(producer)[0]
            assert stage.now - began < 0.1

    play(main, nodes=2)


def test_a_new_leader_in_the_metadata_ends_the_pause() -> None:
    """A batch that pauses after a refusal goes to a new leader as soon as that is known."""

    async def main(stage: Stage) -> None:
        stage.cluster.gives_hints = False
        async with stage.producer(retry_backoff_ms=1000, retry_backoff_max_ms=1000) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, 2)
            await stage.pass_time(10)
            began = stage.now
            await stage.send(producer)[0]
            assert stage.now - began < 0.5

    play(main, nodes=2)


def test_a_pause_is_kept_while_the_leader_stays() -> None:
    """The same leader is not asked again before the backoff is over."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=2
        )
        async with stage.producer(retry_backoff_ms=1000, retry_backoff_max_ms=8000) as producer:
            await stage.send(producer)[0]
            first, second, third = (each.at for each in stage.cluster.sent)
            assert 0.8 <= second - first <= 1.2
            assert 1.6 <= third - second <= 2.4

    play(main)


def delay_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about records that wait, without their figures."""
    return [each for each in caplog.messages if each.startswith("records_deliv") or "delay" in each]


def test_long_retries_are_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A line has partition, time and error; the next one comes with another error, or success."""

    async def main(stage: Stage) -> None:
        def refuse(error: ErrorCode) -> None:
            stage.cluster.script.heal()
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=error, times=1000)

        caplog.set_level("INFO")
        async with stage.producer(linger_ms=0) as producer:
            refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
            receipts = stage.send(producer, 3)
            await stage.pass_time(3)
            assert not delay_lines(caplog)
            await stage.pass_time(30)
            [line] = delay_lines(caplog)
            assert line.startswith("records_delayed partition=t-0 for_s=5.")
            assert "NOT_ENOUGH_REPLICAS" in line
            refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            await stage.pass_time(10)
            refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
            await stage.pass_time(10)
            assert "KAFKA_STORAGE_ERROR" in delay_lines(caplog)[1]
            stage.cluster.script.heal()
            await producer.flush()
            assert outcomes(receipts) == [""] * 3
            assert len(delay_lines(caplog)) == 3
            assert delay_lines(caplog)[2].startswith(
                "records_delivered_again partition=t-0 after_s=5"
            )

    play(main)


def test_a_leader_that_is_away_for_long_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing can be sent then, so that no answer has an error."""

    async def main(stage: Stage) -> None:
        async with stage.producer(linger_ms=0) as producer:
            await stage.send(producer)[0]
            stage.cluster.kill(1)
            receipt = stage.send(producer)[0]
            await stage.pass_time(30)
            [line] = delay_lines(caplog)
            assert line.startswith("records_delayed partition=t-0")
            stage.cluster.revive(1)
            await receipt
            assert "records_delivered_again" in delay_lines(caplog)[1]

    play(main)


def test_a_node_that_dies_while_nothing_is_in_flight_is_noticed() -> None:
    """The next record goes to the new leader, long before the metadata is old."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            await stage.pass_time(20)
            stage.cluster.kill(1)
            await stage.pass_time(20)
            began = stage.now
            await stage.send(producer)[0]
            assert stage.now - began < 3
        stage.check_log()

    play(main, nodes=2)


def test_a_node_that_comes_back_is_used_again() -> None:
    """Records wait for a leader that is away, and are written when it is back."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            await stage.send(producer)[0]
            stage.cluster.nodes[1].kill()
            receipts = stage.send(producer, 5, size=90)
            await stage.pass_time(30)
            assert not any(each.done() for each in receipts)
            stage.cluster.revive(1)
            await producer.flush(timeout=5)
            assert outcomes(receipts) == [""] * 5
        stage.check_log()

    play(main)


def test_no_partition_waits_for_another_ones_leader() -> None:
    """While one partition has no leader, records of others are written."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            (held,) = stage.send(producer)
            await stage.pass_time(1)
            (free,) = stage.send(producer, partition=1)
            await free
            assert not held.done()
            stage.cluster.move(T0, 1)
            await held
        stage.check_log()

    play(main)


def test_a_node_that_is_slow_to_answer_holds_up_no_other() -> None:
    """With linger.ms=0, a record for another node is sent at once, although no caller waits."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=100) as producer:
            for partition in (0, 1):
                await stage.send(producer, partition=partition)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=20, partition=T1)
            (slow,) = stage.send(producer, partition=1)
            await stage.pass_time(0.5)
            (free,) = stage.send(producer)
            await stage.pass_time(0.1)
            assert (free.done(), slow.done()) == (True, False)
        stage.check_log()

    play(main, nodes=2)


def test_partitions_take_turns() -> None:
    """A partition with many batches does not keep others from their turn."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=100, max_request_size=300, max_in_flight_requests_per_connection=1
        ) as producer:
            await stage.send(producer)[0]
            stage.send(producer, 20, size=90)
            stage.send(producer, 2, size=90, partition=1)
            await producer.flush()
            places = [each.partition for each in stage.cluster.sent]
            assert T1 in places[:6]
        stage.check_log()

    play(main)


def test_a_request_has_one_batch_of_each_partition_within_its_size() -> None:
    """`max.request.size` bounds the batches of a request, and all partitions get theirs."""

    async def main(stage: Stage) -> None:
        async with stage.producer(batch_size=1000, max_request_size=1500, linger_ms=10) as producer:
            for number in range(8):
                stage.send(producer, 3, size=250, partition=number)
            await producer.flush()
            assert stage.cluster.count(ApiKey.PRODUCE) >= 8
        stage.check_log()

    play(main, partitions=8)


def test_without_idempotence_no_record_is_lost() -> None:
    """Connections that break may repeat records, and lose none that is acknowledged."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT_AFTER, skip=1)
        async with stage.producer(batch_size=100, enable_idempotence=False) as producer:
            receipts = stage.send(producer, 8, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 8
        stage.check_log(may_repeat=True, may_reorder=True)

    play(main)


def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    """With max.in.flight=1, batches that are refused for a while stay in order."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS, skip=1, times=3
        )
        async with stage.producer(
            batch_size=100, enable_idempotence=False, max_in_flight_requests_per_connection=1
        ) as producer:
            stage.send(producer, 6, size=90)
            await producer.flush()
        stage.check_log()

    play(main)


def test_acks_0_is_done_when_the_request_has_left() -> None:
    """The broker sends no answer, so the receipt has no offset."""

    async def main(stage: Stage) -> None:
        async with stage.producer(acks=0) as producer:
            receipts = stage.send(producer, 3)
            await producer.flush()
            assert [each.result().offset for each in receipts] == [-1] * 3
            await stage.pass_time(1)
        stage.check_log()

    play(main)


def test_with_one_request_in_flight_no_new_leader_gets_the_next_batch_too_early() -> None:
    """While the old leader owes an answer, nothing of the partition goes to the new one."""

    async def main(stage: Stage) -> None:
        async with stage.producer(
            batch_size=100,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            metadata_max_age_ms=1000,
        ) as producer:
            await stage.send(producer, partition=1)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=5, partition=T0)
            (first,) = stage.send(producer, size=90)
            await stage.pass_time(0.5)
            stage.cluster.move(T0, 2)
            await stage.pass_time(2)
            (second,) = stage.send(producer, size=90)
            # The producer knows the new leader: what it has for another partition goes there.
            await stage.send(producer, partition=1)[0]
            assert stage.cluster.asked_topics[1:]
            await stage.pass_time(1)
            assert [each.partition for each in stage.cluster.sent] == [T1, T0, T1]
            await producer.flush()
            assert (first.offset, second.offset) == (0, 1)
            assert [each.node_id for each in stage.cluster.sent if each.partition == T0] == [1, 2]
            assert stage.cluster.sent[-1].at >= 5
        stage.check_log()

    play(main, nodes=2)


def test_throttling_holds_requests_back() -> None:
    """A node gets no request during its throttle time, and no request times out."""

    async def main(stage: Stage) -> None:
        stage.cluster.throttle_ms = 5000
        async with stage.producer(request_timeout_ms=1000) as producer:
            await stage.send(producer)[0]
            await stage.send(producer)[0]
            assert stage.now >= 5
            assert producer.metrics()["produce-throttle-time-max"] == 5000
            stage.cluster.throttle_ms = 100
            began = stage.now
            await stage.send(producer)[0]
            assert stage.now - began == pytest.approx(5, abs=0.1)
            await stage.send(producer)[0]
            assert stage.now - began == pytest.approx(5.1, abs=0.1)
            assert producer.metrics()["produce-throttle-time-max"] == 5000
        stage.check_log()

    play(main)
