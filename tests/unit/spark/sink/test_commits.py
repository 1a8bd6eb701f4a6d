"""Single decisions of the committer, and the work of a task by them, with a real broker."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace import Admin, Broker
from tailrace.client import ClusterReader
from tailrace.client.admin import NewTopic
from tailrace.client.producer import Producer
from tailrace.client.producer.errors import ProducerFencedError
from tailrace.errors import FatalError
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.spark.folder import DiskFolder
from tailrace.spark.sink.cluster import ClusterTransactions
from tailrace.spark.sink.commits import (
    AttemptFencedError,
    BatchCommitter,
    JobCommitter,
    OlderCheckpointError,
    OtherRowsError,
    PartlyCommittedError,
    TransactionPlan,
)
from tailrace.spark.sink.ledger import (
    EPOCH_LAST,
    NO_COUNT,
    PREFIX,
    BatchRecord,
    Count,
    Ledger,
    Slot,
    SlotState,
    commits_name,
    token_name,
)
from tailrace.spark.sink.options import SinkOptions
from tailrace.spark.sink.rows import write_in_transaction
from tailrace.spark.sink.written import TaskAttempt, WrittenRows

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that makes topics of one partition when they are first written to."""
    with Broker(
        tmp_path_factory.mktemp("broker") / "data",
        settings={"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 2},
    ) as broker:
        yield broker.bootstrap_servers


class House:
    """A query on a topic of its own, whose id is the name of the topic."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.topic = self.query = folder.name[:60]
        self.settings = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": "60000"}
        self.folder = folder
        self.ledger = Ledger(DiskFolder(str(folder / "ledger")))
        self.transactions = ClusterTransactions(self.settings)
        self.done: set[int] = set()
        self.bootstrap = bootstrap

    def job(self, *, place: str = "ledger") -> BatchCommitter:
        """The committer of a job with versions, which are noted at a place."""
        return BatchCommitter(
            self.query,
            ledger=Ledger(DiskFolder(str(self.folder / place))),
            transactions=self.transactions,
            app_id="nightly",
        )

    def committer(
        self, query: str | None = None, *, accepted: Count | None = None
    ) -> BatchCommitter:
        """A committer, as each step of a driver has a new one."""
        return BatchCommitter(
            query or self.query,
            ledger=self.ledger,
            transactions=self.transactions,
            is_done=self.done.__contains__,
            accepted=accepted,
        )

    def write(
        self,
        *values: bytes,
        slot: int = 0,
        record: BatchRecord | None = None,
        batch: int = 7,
        groups: dict[str, dict[TopicPartition, int]] | None = None,
        token: Count | None = None,
    ) -> WrittenRows:
        """A task of the batch that writes these values; with the newest token if none is given."""
        table = pa.table({"value": pa.array(values, pa.binary())})
        return write_in_transaction(
            table.to_batches(),
            SinkOptions(topic=self.topic, producer=self.settings),
            TransactionPlan(
                work_id=self.query,
                token=token or self.transactions.raise_count(token_name(self.query)),
                record=record,
                offsets_of=batch,
                group_offsets=groups or {},
            ),
            attempt=TaskAttempt(query_id=self.query, batch_id=batch, partition_id=slot),
            transactions=self.transactions,
        )

    def visible(self) -> tuple[int, int]:
        """The last stable offset, and the end of the log."""
        place = TopicPartition(self.topic, 0)
        with closing(ClusterReader(self.bootstrap)) as cluster:
            stable = cluster.log_range(place, isolation=IsolationLevel.READ_COMMITTED)[1]
            return stable, cluster.log_range(place)[1]


@pytest.fixture
def house(bootstrap: str, tmp_path: Path) -> Iterator[House]:
    """A query that has written nothing."""
    found = House(bootstrap, tmp_path)
    with closing(found.transactions):
        yield found


def slots_of(*written: WrittenRows) -> dict[int, Slot]:
    """The slots of a batch."""
    return {each.attempt.partition_id: each.slot() for each in written}


def test_rows_are_out_of_sight_until_the_batch_is_committed(house: House) -> None:
    """An empty task has no transaction; a batch that is committed again changes nothing."""
    first, second = house.write(b"a", b"b"), house.write(slot=1)
    assert first.transaction is not None
    assert second.transaction is None
    assert house.visible()[0] == 0
    house.committer().commit(7, slots_of(first, second))
    stable, end = house.visible()
    assert stable == end == 3
    house.committer().commit(7, slots_of(first, second))
    assert house.committer().recover().record is not None
    assert house.visible() == (3, 3)


def test_a_promise_survives_an_abort_and_is_kept_at_the_next_start(house: House) -> None:
    """Spark calls `abort` also after a commit that failed on its way."""
    written = house.write(b"a")
    cluster_id = house.transactions.cluster_id()
    house.ledger.write(
        BatchRecord(
            query_id=house.query, batch_id=7, cluster_id=cluster_id, slots=slots_of(written)
        )
    )
    house.committer().abort(7)
    assert house.visible()[0] == 0
    house.committer().recover()
    assert house.visible() == (2, 2)


def test_without_a_promise_an_abort_takes_all_back(house: House) -> None:
    """No reader waits for the rows of a batch that has failed."""
    house.write(b"a")
    house.write(b"b", slot=1)
    house.committer().abort(7)
    stable, end = house.visible()
    assert stable == end


def test_attempts_at_one_slot_do_not_abort_each_other(house: House) -> None:
    """Spark numbers them from 0 again for each attempt of their stage, and counts any of them."""
    plan = house.committer().recover()
    first, second, third = (house.write(b"a", token=plan.token) for _ in range(3))
    house.committer().commit(7, slots_of(second))
    assert house.visible()[0] == house.visible()[1]
    place = TopicPartition(house.topic, 0)
    producers = [each.transaction.producer_id for each in (first, second, third)]  # type: ignore[union-attr]
    outcomes = [
        house.transactions.is_committed(place, offset=offset, producer_id=producer)
        for offset, producer in enumerate(producers)
    ]
    assert outcomes == [False, True, False]


def test_batches_use_the_ids_of_those_before(house: House) -> None:
    """One for each slot, however many batches there are, as long as nothing goes wrong.

    A batch without rows changes nothing. After an attempt that does not count there is one more.
    """

    def run(batch: int, *values: bytes, attempts: int = 1) -> str | None:
        plan = house.committer().recover()
        *_, written = [
            house.write(*values, batch=batch, token=plan.token, record=plan.record)
            for _ in range(attempts)
        ]
        free_id = written.free_id()
        free_ids = {} if free_id is None else {0: free_id}
        house.committer().commit(batch, slots_of(written), free_ids)
        house.done.add(batch)
        return written.transaction and written.transaction.transactional_id

    first = run(1, b"a")
    assert [run(2, b"b"), run(3), run(4, b"c")] == [first, None, first]
    second = run(5, b"d", attempts=2)
    third = run(6, b"e", attempts=2)
    assert len({first, second, third}) == 3
    assert [run(7, b"f"), run(8, b"g")] == [third, third]


def run_batch(house: House, number: int, value: bytes) -> None:
    """A batch of one row."""
    plan = house.committer().recover()
    written = house.write(value, batch=number, token=plan.token, record=plan.record)
    house.committer().commit(number, slots_of(written))
    house.done.add(number)


def test_notes_that_were_put_back_are_refused(house: House) -> None:
    """The cluster has seen a later batch; the user may go on all the same, and says it once."""
    run_batch(house, 1, b"a")
    shutil.copytree(house.folder / "ledger", house.folder / "backup")
    run_batch(house, 2, b"b")
    shutil.rmtree(house.folder / "ledger")
    shutil.copytree(house.folder / "backup", house.folder / "ledger")
    with pytest.raises(OlderCheckpointError, match="knows nothing after batch 1") as caught:
        house.committer().recover()
    with pytest.raises(OlderCheckpointError, match="nothing after batch 1"):
        house.committer(accepted=Count(caught.value.count.producer_id, 0)).recover()
    house.committer(accepted=caught.value.count).recover()
    run_batch(house, 2, b"b")
    run_batch(house, 3, b"c")
    # Each with the marker of its transaction.
    assert house.visible() == (8, 8)


def test_a_job_with_another_directory_is_refused(house: House) -> None:
    """Its version may be there already; the directory of before is taken."""
    house.job().recover()
    house.job().commit(7, slots_of(house.write(b"a")))
    with pytest.raises(OlderCheckpointError, match="seen later ones of 'nightly'"):
        house.job(place="other").recover()
    assert house.job().recover().record is not None


def test_a_promise_that_was_not_counted_is_kept(house: House) -> None:
    """Its driver died after the note; so does a driver that died after the count."""
    written = house.write(b"a")
    name, before = commits_name(house.query), house.transactions.count(commits_name(house.query))
    house.ledger.write(
        BatchRecord(
            query_id=house.query,
            batch_id=7,
            cluster_id=house.transactions.cluster_id(),
            slots=slots_of(written),
            commits_before=before,
        )
    )
    for _ in range(2):
        house.committer().recover()
        assert house.transactions.count(name).follows(before)
    assert house.visible() == (2, 2)


def test_notes_of_another_cluster_or_an_earlier_version_are_not_compared(house: House) -> None:
    """They do not say what this cluster has counted."""
    run_batch(house, 1, b"a")
    run_batch(house, 2, b"b")
    record = house.ledger.newest()
    assert record is not None
    older = replace(record, commits_before=Count(record.commits_before[0], 0))  # type: ignore[index]
    for each in (replace(older, cluster_id="other"), replace(older, commits_before=None)):
        house.ledger.write(each)
        assert house.committer().recover().record == each


def test_a_count_is_raised_once_however_often_it_is_asked(house: House) -> None:
    """From nothing to epoch 0; a driver that has another count in mind is refused."""
    name, transactions = f"{house.topic}.commits", house.transactions
    assert transactions.count(name) == NO_COUNT
    for _ in range(2):
        transactions.raise_count_after(name, NO_COUNT)
        assert transactions.count(name).producer_epoch == 0
    first = transactions.count(name)
    for _ in range(2):
        transactions.raise_count_after(name, first)
        assert transactions.count(name) == (first.producer_id, 1)
    for before in (NO_COUNT, Count(first.producer_id, 7)):
        with pytest.raises(FatalError, match="another driver writes"):
            transactions.raise_count_after(name, before)
    assert transactions.count(name).producer_epoch == 1


def test_the_count_after_the_last_epoch_is_that_of_another_producer() -> None:
    """Kafka gives out no epoch above 32766."""
    assert Count(9, 0).follows(Count(7, EPOCH_LAST))
    assert not Count(9, 1).follows(Count(7, EPOCH_LAST))
    assert not Count(9, 0).follows(Count(7, 12))
    assert Count(7, 13).follows(Count(7, 12))
    assert Count(7, 0).follows(NO_COUNT)


@pytest.mark.parametrize("kind", ["job", "stream"])
def test_a_task_that_outlives_its_batch_opens_nothing(house: House, kind: str) -> None:
    """It comes too late for an identity, or has one and is fenced; an identity is fenced once."""
    job = JobCommitter(house.query, house.transactions)
    stream = house.committer()
    plan = job.begin() if kind == "job" else stream.recover()
    slot = TaskAttempt(partition_id=5 if kind == "job" else 6)
    name, _ = plan.take_id(slot, house.transactions)
    twin = house.settings | {"transactional.id": name}
    with Producer(twin) as producer:
        producer.begin_transaction()
        for _ in range(2):
            if kind == "job":
                job.abort()
            else:
                stream.abort(7)
        with pytest.raises(ProducerFencedError):
            producer.send(house.topic, b"late").result()
    with Admin(bootstrap_servers=house.bootstrap) as admin:
        described = admin.describe_transactions([name]).results()
    assert [each.producer_epoch for each in described.values()] == [1]
    with pytest.raises(AttemptFencedError, match="comes too late and writes nothing"):
        house.write(b"later", token=plan.token)
    stable, end = house.visible()
    assert stable == end


@pytest.mark.parametrize(("own", "other"), [("a.b", "axb"), ("(", "x"), ("n+ é", "nn é")])
def test_an_abort_ends_the_transactions_of_its_own_work_only(
    house: House, own: str, other: str
) -> None:
    """Names of work are no patterns: others stay open that one of these would match."""
    job = JobCommitter(own, house.transactions)
    own_name, other_name = f"{PREFIX}{own}-0-0", f"{PREFIX}{other}-0-0"
    with (
        Producer(house.settings | {"transactional.id": own_name}) as fenced,
        Producer(house.settings | {"transactional.id": other_name}) as free,
    ):
        for each in (fenced, free):
            each.begin_transaction()
            each.send(house.topic, b"row").result()
        job.abort()
        free.commit_transaction()
        with pytest.raises(ProducerFencedError):
            fenced.commit_transaction()


def test_a_promise_to_another_cluster_is_not_judged_by_this_one(house: House) -> None:
    """Its transactions are not here; once Spark has noted the batch, that does not matter."""
    written = house.write(b"a")
    slots = slots_of(written)
    house.ledger.write(
        BatchRecord(query_id=house.query, batch_id=7, cluster_id="other", slots=slots)
    )
    with pytest.raises(FatalError, match="written to the cluster 'other'"):
        house.committer().recover()
    house.done.add(7)
    assert house.committer().recover().record is not None


def test_a_ledger_belongs_to_one_query(house: House) -> None:
    """Two queries on one checkpoint would commit each other's rows."""
    house.committer().commit(7, slots_of(house.write(b"a")))
    with pytest.raises(FatalError, match="and this is 'other': give each query"):
        house.committer("other").recover()


def test_lost_rows_are_written_again_and_committed_ones_are_not(house: House) -> None:
    """Each only if the task has the same rows as before; other rows are taken back."""
    kept, lost = house.write(b"kept"), house.write(b"lost", slot=1)
    assert lost.transaction is not None
    house.committer().commit(7, slots_of(kept))
    with Admin(bootstrap_servers=house.bootstrap) as admin:
        admin.fence_producers([lost.transaction.transactional_id]).results()
    known = house.ledger.newest()
    assert known is not None
    record = replace(
        known,
        slots={
            0: kept.slot().becomes(SlotState.COMMITTED),
            1: lost.slot().becomes(SlotState.LOST),
        },
    )
    house.ledger.write(record)
    with pytest.raises(OtherRowsError, match="partition 0 of batch 7 has other rows"):
        house.write(b"other", record=record)
    with pytest.raises(OtherRowsError, match="partition 1 of batch 7 has other rows"):
        house.write(b"other", slot=1, record=record)
    with pytest.raises(OtherRowsError, match="partition 2 of batch 7"):
        house.write(b"more", slot=2, record=record)
    stable, end = house.visible()
    assert stable == end
    again = house.write(b"kept", record=record), house.write(b"lost", slot=1, record=record)
    assert again[0].transaction is None
    assert again[1].transaction is not None
    house.committer().commit(7, slots_of(*again))
    newest = house.ledger.newest()
    assert newest is not None
    assert newest.lost == []
    assert newest.slots[0].transaction == kept.transaction


def test_a_lost_slot_that_is_not_written_again_is_an_error(house: House) -> None:
    """The second run of the batch has fewer tasks."""
    lost = house.write(b"lost", slot=1).slot().becomes(SlotState.LOST)
    kept = house.write(b"kept").slot().becomes(SlotState.COMMITTED)
    house.ledger.write(BatchRecord(query_id=house.query, batch_id=7, slots={0: kept, 1: lost}))
    with pytest.raises(OtherRowsError, match="partition 1"):
        house.committer().commit(7, {0: kept})


def test_offsets_of_a_group_go_with_slot_0_of_their_batch(house: House) -> None:
    """Also if the task has no rows; not with another batch, or another slot."""
    place = TopicPartition("in", 0)
    with Admin(bootstrap_servers=house.bootstrap) as admin:
        admin.create_topics([NewTopic("in", 1)])
        groups = {f"{house.topic}-group": {place: 41}}
        assert house.write(slot=1, groups=groups).transaction is None
        written = house.write(groups=groups)
        assert written.transaction is not None
        assert written.row_count == 0
        house.committer().commit(7, slots_of(written))
        found = admin.list_group_offsets(f"{house.topic}-group").results()
        assert {each: value.offset for each, value in found.items()} == {place: 41}


def test_a_version_that_is_committed_is_not_looked_at_again(house: House) -> None:
    """The note says so: its transactional ids may be used again, and its records be deleted."""
    written = house.write(b"a")
    house.job().commit(7, slots_of(written))
    with Admin(bootstrap_servers=house.bootstrap) as admin:
        assert written.transaction is not None
        admin.fence_producers([written.transaction.transactional_id]).results()
        admin.delete_records({TopicPartition(house.topic, 0): -1}).results()
    record = house.job().recover().record
    assert record is not None
    assert record.slots[0].state is SlotState.COMMITTED
    assert house.write(b"b", record=record).transaction is None


def test_versions_of_a_job_rise(house: House) -> None:
    """A lower one is refused by its name; one that is committed in part has to be finished first.

    One of which nothing is committed does not count.
    """
    kept = house.write(b"kept").slot().becomes(SlotState.COMMITTED)
    lost = house.write(b"lost", slot=1).slot().becomes(SlotState.LOST)
    record = BatchRecord(
        query_id=house.query, app_id="nightly", batch_id=7, slots={0: kept, 1: lost}
    )
    with pytest.raises(FatalError, match="txnVersion 6 is lower than 7, the newest that 'nightly'"):
        house.write(b"early", batch=6, record=record)
    plan = TransactionPlan(work_id=house.query, token=Count(0, 0), record=record)
    assert plan.promised(7) == record
    with pytest.raises(PartlyCommittedError, match="txnVersion 7 of 'nightly' is committed in par"):
        plan.promised(8)
    void = replace(plan, record=replace(record, slots={1: lost}))
    assert (void.promised(7), void.promised(8)) == (None, None)


def test_a_batch_job_tells_what_was_not_committed(house: House) -> None:
    """It has no second chance: the rows of other tasks are visible."""
    written = [house.write(b"a"), house.write(b"b", slot=1)]
    found = [each.transaction for each in written]
    transactions = [each for each in found if each is not None]
    with Admin(bootstrap_servers=house.bootstrap) as admin:
        admin.fence_producers([transactions[1].transactional_id]).results()
    with pytest.raises(FatalError, match="have aborted 1 of 2 transactions"):
        JobCommitter(house.query, house.transactions).commit(transactions)
    stable, end = house.visible()
    assert stable == end
