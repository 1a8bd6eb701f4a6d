"""Answers that lie: records with changed bytes, and partitions that nobody asked for."""

import random
from uuid import UUID

import crc32c
import pytest

from tailrace.client.consumer.columns import Collector
from tailrace.client.consumer.errors import DamagedRecordsError
from tailrace.client.consumer.fetched import FetchedPart, cut_records, take_rows
from tailrace.client.fetch_session import FetchSession, Wanted
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.fetch import FetchResponse
from tailrace.records import layout
from tailrace.records.batch import stamp
from tailrace.records.control import build_end_marker
from tests.unit.broker.brokers import batch
from tests.unit.storage.plans import with_offsets

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def test_changed_bytes_end_in_an_error_or_in_what_was_written() -> None:
    """Each of 2,000 changed answers gives sound records only, or a DamagedRecordsError."""
    chance = random.Random(1)
    sound = batch(b"one", b"two")
    for _ in range(2000):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        part = FetchedPart(T0, offset=0)
        cut_records(part, memoryview(data), place="here", aborted=())
        assert part.error is None or isinstance(part.error, DamagedRecordsError)
        values, error = read_all(part)
        assert values in ([b"one", b"two"], [])
        assert error is None or error.partition == T0


def read_all(part: FetchedPart) -> tuple[list[bytes | None], DamagedRecordsError | None]:
    """The values of a part, and the error that ends them."""
    values: list[bytes | None] = []
    try:
        while (rows := take_rows(part, 0, 10)) is not None:
            values += [each.value for each in rows.records]
    except DamagedRecordsError as error:
        return values, error
    return values, None


def test_damage_behind_sound_records_is_told_after_them() -> None:
    """The batches before the damage are kept, and the error says where to seek to."""
    data = bytearray(batch(b"one") + batch(b"two"))
    data[8 + len(data) // 2 + 40] ^= 1
    part = FetchedPart(T0, offset=0)
    cut_records(part, memoryview(data), place="here", aborted=None)
    assert [each.last_offset for each in part.pieces] == [0]
    assert isinstance(part.error, DamagedRecordsError)
    assert part.error.next_offset is not None


def test_a_marker_with_an_unknown_codec_is_damage() -> None:
    """A reader of committed records says where the batch is that it cannot decompress."""
    data = build_end_marker(1, 0, is_commit=False, coordinator_epoch=0, timestamp=0)
    data[layout.ATTRIBUTES_POSITION + 1] |= layout.CODEC_MASK
    crc = crc32c.crc32c(memoryview(data)[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(data, layout.CRC_POSITION, crc)
    part = FetchedPart(T0, offset=0)
    cut_records(part, memoryview(data), place="here", aborted=())
    assert isinstance(part.error, DamagedRecordsError)
    assert part.error.partition == T0


def test_a_record_before_its_batch_is_damage_for_rows_and_columns() -> None:
    """A broker that lies cannot send an offset again that the reader has passed."""
    second = with_offsets(-1, 0)
    stamp(memoryview(second), base_offset=2, leader_epoch=0)
    records = memoryview(batch(b"one", b"two") + second)
    rows, columns = (FetchedPart(T0, offset=0) for _ in range(2))
    for part in (rows, columns):
        cut_records(part, records, place="here", aborted=None)
    values, told = read_all(rows)
    assert values == [b"one", b"two"]
    assert told is not None
    assert told.next_offset == 4
    assert "record 0 of 2: its offset delta is negative" in str(told)
    collector = Collector(["offset"])
    assert collector.append(columns, 0) == (2, -1)
    with pytest.raises(DamagedRecordsError) as caught:
        collector.append(columns, 2)
    assert str(caught.value) == str(told)
    assert collector.finish().to_pydict() == {"offset": [0, 1]}


@pytest.mark.parametrize("found", [[T1], [T0, T0], [], [None]])
def test_a_full_answer_with_other_partitions_is_refused(found: list[TopicPartition | None]) -> None:
    """An answer to a full request must have exactly the partitions that were asked for."""
    session = FetchSession()
    session.plan({T0: Wanted(NO_UUID, 0, -1, 100)})
    assert not session.is_answer(FetchResponse(session_id=7), found)
    assert session.plan({T0: Wanted(NO_UUID, 0, -1, 100)}).session_epoch == 0


def test_a_session_names_only_what_has_changed() -> None:
    """After a full request the next ones have new, changed and forgotten partitions only."""
    session = FetchSession()
    session.plan({T0: Wanted(NO_UUID, 0, -1, 100), T1: Wanted(NO_UUID, 0, -1, 100)})
    assert session.is_answer(FetchResponse(session_id=7), [T0, T1])
    plan = session.plan({T0: Wanted(NO_UUID, 5, -1, 100)})
    assert (plan.session_id, plan.session_epoch) == (7, 1)
    assert [each.partitions[0].fetch_offset for each in plan.topics] == [5]
    assert [each.partitions for each in plan.forgotten] == [(1,)]


def test_a_session_that_the_broker_has_lost_begins_anew() -> None:
    """FETCH_SESSION_ID_NOT_FOUND is followed by a full request without a session."""
    session = FetchSession()
    session.plan({T0: Wanted(NO_UUID, 0, -1, 100)})
    assert session.is_answer(FetchResponse(session_id=7), [T0])
    lost = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert not session.is_answer(lost, [])
    plan = session.plan({T0: Wanted(NO_UUID, 0, -1, 100)})
    assert (plan.session_id, plan.session_epoch, len(plan.topics)) == (0, 0, 1)


def test_a_session_forgets_topics_by_the_ids_that_it_knows() -> None:
    """A partition that goes is forgotten with its id, and one whose topic was made anew as well."""
    old, new = UUID(int=1), UUID(int=2)
    session = FetchSession()
    session.plan({T0: Wanted(old, 0, -1, 100), T1: Wanted(old, 0, -1, 100)})
    assert session.is_answer(FetchResponse(session_id=7), [T0, T1])
    plan = session.plan({T0: Wanted(new, 0, -1, 100)})
    assert [(each.topic_id, each.partitions) for each in plan.forgotten] == [(old, (0, 1))]
    assert [each.topic_id for each in plan.topics] == [new]
    assert session.is_answer(FetchResponse(session_id=7), [])
    assert session.plan({T0: Wanted(new, 0, -1, 100)})[2:4] == ((), ())


def test_a_session_begins_anew_when_ids_come_or_go() -> None:
    """A session has names or ids, never both: a full request replaces it, with all partitions."""
    named, known = Wanted(NO_UUID, 0, -1, 100), Wanted(UUID(int=1), 0, -1, 100)
    session = FetchSession()
    for wanted in (named, known, named):
        plan = session.plan({T0: wanted})
        assert (plan.session_epoch, plan.has_ids) == (0, wanted is known)
        assert [len(each.partitions) for each in plan.topics] == [1]
        assert session.is_answer(FetchResponse(session_id=7), [T0])
    plan = session.plan({T0: named, T1: known})
    assert not plan.has_ids
