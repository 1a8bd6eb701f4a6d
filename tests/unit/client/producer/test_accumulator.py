"""Which batches may be sent, and when."""

from random import Random

from tailrace.client.nodes import Backoff
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.intake.encoding import record_size_bound
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.plugins import ProducerRecord
from tailrace.client.producer.queue.accumulator import Accumulator
from tailrace.client.producer.queue.batches import InFlightBatch
from tailrace.client.producer.queue.memory import BatchSupply, BufferPool, CompressionRatios
from tailrace.client.producer.queue.open_batches import OpenBatch
from tailrace.kernels.record_block import pack_headers
from tailrace.records.batch import read_batches
from tailrace.records.builder import Record, records_of
from tests.unit.client.producer.transaction_life import T0, T1, NobodyWaits

HEADERS = (("h", b"x"),)


def queues(**settings: object) -> Accumulator:
    """An accumulator that lingers for five seconds."""
    given: dict[str, object] = {"bootstrap_servers": "b:1", "linger_ms": 5000, "batch_size": 300}
    config = parse_producer_config(given | settings)
    return Accumulator(
        config,
        supply=BatchSupply(config, NobodyWaits()),
        backoff=Backoff(1000, 1000, Random(0)),
        closed=lambda _: None,
    )


def prepared(size: int = 10) -> Prepared:
    """A record with a value of that size."""
    value = b"x" * size
    record = ProducerRecord("t", value, headers=HEADERS)
    headers = pack_headers(HEADERS)
    return Prepared(record, None, value, headers, record_size_bound(None, value, headers))


def batch_of(
    accumulator: Accumulator, *sizes: int, partition: object = T0, now: float = 0.0
) -> OpenBatch:
    """A queued batch with records of these sizes."""
    first, *more = [prepared(size) for size in sizes or (10,)]
    batch = accumulator.supply.new_batch(partition, size=first.size, now=now)  # type: ignore[arg-type]
    assert batch is not None
    accumulator.enqueue(batch, now=now)
    for each in (first, *more):
        assert accumulator.append(batch, each, now_ns=0) is not None
    return batch


def records_in(batch: InFlightBatch) -> list[Record]:
    """The records of the batch, from its bytes."""
    pool = BufferPool(1 << 20, 1 << 10)
    config = parse_producer_config({"bootstrap_servers": "b:1"})
    batch.encode(pool, config, CompressionRatios())
    assert batch.encoded is not None
    [(_, found)] = read_batches(batch.encoded)
    found.check()
    return list(records_of(found))


def test_a_partition_is_ready_when_its_batch_has_lingered() -> None:
    """Before `linger.ms` it is not, and a timer says when it will be."""
    accumulator = queues()
    batch_of(accumulator)
    assert not accumulator.ready
    assert accumulator.next_timer() == 5.0
    accumulator.wake_timers(4.9)
    assert not accumulator.ready
    accumulator.wake_timers(5.0)
    assert list(accumulator.ready) == [T0]


def test_a_full_batch_is_ready_at_once() -> None:
    """A record that does not fit closes the batch, which may then be sent."""
    accumulator = queues()
    batch = batch_of(accumulator, 150)
    assert accumulator.append(batch, prepared(200), now_ns=0) is None
    assert accumulator.open_batch(T0) is None
    assert list(accumulator.ready) == [T0]


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    """`batch.size` bounds batches of several records, not a record."""
    for codec in ("none", "gzip"):
        accumulator = queues(compression_type=codec)
        batch = batch_of(accumulator, 5000)
        taken = accumulator.take(T0, 0.0)
        assert taken.outcome is batch.outcome
        assert taken.record_count == 1


def test_what_is_put_back_pauses_and_others_do_not() -> None:
    """A batch that is sent again waits for the backoff, also when all are hurried."""
    accumulator = queues(linger_ms=0)
    batch_of(accumulator)
    batch_of(accumulator, partition=T1)
    again = accumulator.take(T0, 0.0)
    accumulator.requeue(again, now=1.0, index=0, is_moved=False)
    accumulator.begin_flush()
    assert list(accumulator.ready) == [T1]
    due = accumulator.next_timer()
    assert due is not None
    assert 1.8 <= due <= 2.2
    accumulator.wake_timers(due)
    assert T0 in accumulator.ready


def test_a_new_leader_ends_the_pause() -> None:
    """A batch that the old leader refused may be sent to the new one at once."""
    accumulator = queues(linger_ms=0)
    batch_of(accumulator)
    again = accumulator.take(T0, 0.0)
    again.leader = "old"
    accumulator.requeue(again, now=1.0, index=0, is_moved=False)
    accumulator.wake_moved(lambda _: "old", 1.0)
    assert not accumulator.ready
    accumulator.wake_moved(lambda _: "new", 1.0)
    assert list(accumulator.ready) == [T0]


def test_a_muted_partition_is_not_ready() -> None:
    """No reason to send makes a muted partition ready before it is unmuted."""
    accumulator = queues(linger_ms=0)
    accumulator.mute(T0)
    batch_of(accumulator)
    accumulator.begin_flush()
    assert not accumulator.ready
    accumulator.unmute(T0, 0.0)
    assert list(accumulator.ready) == [T0]


def test_a_batch_that_was_taken_takes_no_more_records() -> None:
    """The next record goes into another batch."""
    accumulator = queues(linger_ms=0)
    batch = batch_of(accumulator)
    assert accumulator.open_batch(T0) is batch
    accumulator.take(T0, 0.0)
    assert accumulator.open_batch(T0) is None


def test_parts_take_the_place_of_the_whole_and_keep_the_order_of_age() -> None:
    """Parts have the records, headers and age of the whole, and older batches stay before them."""
    accumulator = queues(linger_ms=0)
    older = batch_of(accumulator, partition=T1, now=0.0)
    batch_of(accumulator, 1, 2, 3, now=1.0)
    whole = accumulator.take(T0, 1.0)
    parts = [InFlightBatch(each) for each in whole.sealed.split()]
    accumulator.end(whole)
    accumulator.requeue_parts(parts, now=2.0, index=0)
    assert list(accumulator.incomplete.values()) == [older, *parts]
    assert [each.created_at for each in parts] == [1.0, 1.0]
    records = [[(each.value, each.headers) for each in records_in(part)] for part in parts]
    assert records == [[(b"x", HEADERS)], [(b"xx", HEADERS), (b"xxx", HEADERS)]]
    assert [accumulator.take(T0, 2.0) for _ in parts] == parts


def test_memory_is_given_back_once() -> None:
    """The end of a batch frees its memory, and a second one does not free it again."""
    accumulator = queues()
    pool = accumulator.supply.pool
    batch = batch_of(accumulator)
    assert pool.available < pool.total
    ended = accumulator.withdraw(batch.outcome)
    accumulator.end(ended)
    accumulator.end(ended)
    assert pool.available == pool.total
