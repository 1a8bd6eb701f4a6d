"""Any sequence of operations on a log gives what a plain list of records would give."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Codec, SpecialTimestamp
from tailrace.records.batch import read_batches
from tailrace.records.builder import records_of
from tailrace.storage.log import Log
from tailrace.storage.reader import open_log_reader
from tailrace.storage.recovery import Cut
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import FOLDER, NOW, append, batch, open_at, records, settings

CONFIG = settings(segment_bytes=900, segment_index_bytes=96, index_interval_bytes=150)

RECORD = st.tuples(st.binary(max_size=120), st.integers(-20, 20))
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.sampled_from(Codec), st.lists(RECORD, min_size=1, max_size=5)
        ),
        st.tuples(st.just("read"), st.floats(0, 1), st.integers(0, 700)),
        st.tuples(st.just("find"), st.integers(-25, 60), st.none()),
        st.tuples(
            st.sampled_from(["roll", "sync", "checkpoint", "reopen", "kill", "power loss"]),
            st.none(),
            st.none(),
        ),
    ),
    min_size=5,
    max_size=40,
)


@dataclass(slots=True)
class Model:
    """The log under test, the disk it is on, and the list it is held against."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    expected: list[tuple[bytes, int]] = field(default_factory=list)
    """Value and timestamp by offset."""
    ends: list[int] = field(default_factory=list)
    """Where batches end, as offsets."""
    cuts: list[Cut] = field(default_factory=list)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.open(is_clean=False, recovery_point=0)

    def open(self, *, is_clean: bool, recovery_point: int) -> None:
        """Open what is on the disk."""
        self.log = open_at(
            self.files,
            config=CONFIG,
            is_clean=is_clean,
            checkpoints=(recovery_point, 0),
            report=self.cuts.append,
        )

    def append(self, codec: Codec, rows: list[tuple[bytes, int]]) -> None:
        """Append a batch; timestamps wander, and on the whole they rise."""
        now = NOW + len(self.expected)
        given_records = [(value, now + delta) for value, delta in rows]
        data = batch(
            *(value for value, _ in given_records),
            timestamps=[timestamp for _, timestamp in given_records],
            codec=codec,
        )
        done = append(self.log, data)
        assert done.base_offset == len(self.expected)
        self.expected += given_records
        self.ends.append(len(self.expected))

    def read(self, share: float, bytes_max: int) -> None:
        """Read somewhere: whole batches from the one with the offset on, at least one."""
        offset = round(share * len(self.expected))
        found = self.log.read(offset, bytes_max=bytes_max, is_first_whole=True)
        assert found.high_watermark == len(self.expected)
        got = [each for _, each in read_batches(found.view)]
        if offset == len(self.expected):
            assert not got
            return
        assert got[0].base_offset <= offset <= got[0].last_offset
        assert len(found.view) <= max(bytes_max, got[0].size)
        at = got[0].base_offset
        for each in got:
            each.check()
            for record in records_of(each):
                assert (record.offset, record.value, record.timestamp) == (at, *self.expected[at])
                at += 1

    def find(self, delta: int) -> None:
        """Find by time: the first record that is at least as young, and the ends of the log."""
        timestamp = NOW + delta
        wanted = next(
            ((time, at) for at, (_, time) in enumerate(self.expected) if time >= timestamp), None
        )
        found = self.log.find_offset(timestamp)
        assert (None if found is None else tuple(found[0])) == wanted
        newest = self.log.find_offset(SpecialTimestamp.MAX_TIMESTAMP)
        times = [time for _, time in self.expected]
        if times:
            assert newest is not None
            assert newest[0] == (max(times), times.index(max(times)))

    def restart(self, kind: str) -> None:
        """Stop in some way, open again, and hold all records against the list."""
        point = self.log.positions.recovery_point
        if kind == "reopen":
            self.log.finish()
            self.log.sync()
            self.log.close()
            self.open(is_clean=True, recovery_point=len(self.expected))
        else:
            self.log.close()
            self.files = self.files.crash(keep_unsynced=kind == "kill")
            self.open(is_clean=False, recovery_point=point)
        end = self.log.end_offset
        if kind == "power loss":
            assert point <= end
            assert end in {0, *self.ends}
            del self.expected[end:]
            self.ends = [each for each in self.ends if each <= end]
        else:
            assert not self.cuts
        self.cuts.clear()
        self.check()

    def check(self) -> None:
        """The log and a reader beside it have exactly the records of the list."""
        got = [(record.value, record.timestamp) for record in records(self.log)]
        assert got == self.expected
        reader = open_log_reader(self.files, FOLDER)
        assert reader.end_offset == len(self.expected)
        beside = [
            (record.value, record.timestamp)
            for each in reader.batches(0, reader.end_offset)
            for record in records_of(each)
        ]
        assert beside == self.expected


@given(OPERATIONS)
def test_a_log_is_a_list(operations: list[tuple[str, object, object]]) -> None:
    """Appends, reads, searches, rolls, flushes, stops and kills agree with a list of records."""
    model = Model()
    for operation in operations:
        match operation:
            case ("append", Codec() as codec, list(rows)):
                model.append(codec, rows)
            case ("read", float(share), int(bytes_max)):
                model.read(share, bytes_max)
            case ("find", int(delta), _):
                model.find(delta)
            case ("roll", _, _):
                model.log.roll()
            case ("sync", _, _):
                model.log.sync()
            case ("checkpoint", _, _):
                model.log.sync_rolled()
            case (kind, _, _):
                model.restart(kind)
    model.check()
