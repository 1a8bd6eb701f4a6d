"""The record of commits, and the parts of a checkpoint that a sink looks at."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.client.prepared_transaction import PreparedTransaction
from tailrace.errors import CorruptionError, FatalError
from tailrace.model import TopicPartition
from tailrace.spark.folder import ArrowFolder, DiskFolder, Folder
from tailrace.spark.sink.checkpoint import Checkpoint, arrow_location
from tailrace.spark.sink.ledger import KEPT, BatchRecord, Count, FreeId, Ledger, Slot, SlotState
from tailrace.testing import MemoryFiles, ProcessKilledError

SLOT = Slot(
    row_count=3,
    digest="ab",
    transaction=PreparedTransaction("tailrace-q-0-0", 7, 2, 2),
    last_offsets={TopicPartition("t", 1): 41, TopicPartition("u", 0): 5},
)
EMPTY = Slot(row_count=0, digest="cd", transaction=None, state=SlotState.COMMITTED)


def record(batch_id: int, **slots: Slot) -> BatchRecord:
    """A record of a query."""
    found = slots or {"0": SLOT, "1": EMPTY}
    return BatchRecord(
        query_id="q",
        batch_id=batch_id,
        slots={int(number.lstrip("s")): slot for number, slot in found.items()},
        free_ids={4: FreeId("tailrace-q-4-7-0", Count(7, 12))},
        commits_before=Count(8, 41),
    )


@pytest.fixture(params=["disk", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder of either kind."""
    return ArrowFolder(tmp_path.as_uri()) if request.param == "uri" else DiskFolder(str(tmp_path))


def test_what_was_written_last_is_read_again(folder: Folder) -> None:
    """A batch may be written anew; older files go, but for a few."""
    ledger = Ledger(folder)
    assert ledger.newest() is None
    for number in range(KEPT + 2):
        ledger.write(record(number))
    last = record(KEPT + 1, s0=SLOT.becomes(SlotState.LOST))
    ledger.write(last)
    assert ledger.newest() == last
    assert last.lost == [0]
    assert len([name for name in folder.names() if name.endswith(".json")]) == KEPT


def test_the_page_shows_what_is_written(tmp_path: Path) -> None:
    """Its example has the fields of a file, and of a slot with and without a transaction."""
    Ledger(DiskFolder(str(tmp_path))).write(record(42))
    written = json.loads((tmp_path / f"{42:020}.json").read_text())
    page = Path("docs/formats/commit-notes.md").read_text()
    shown = json.loads(page.split("```json")[1].split("```")[0])
    assert shown.keys() == written.keys()
    assert shown["format"] == written["format"]
    for number in ("0", "1"):
        found, told = shown["slots"][number], written["slots"][number]
        assert {name: type(each) for name, each in found.items()} == {
            name: type(each) for name, each in told.items()
        }


def test_a_note_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """It has no transactional ids for the next batch, and no count."""
    Ledger(DiskFolder(str(tmp_path))).write(record(42))
    path = tmp_path / f"{42:020}.json"
    content = json.loads(path.read_text())
    del content["ids"], content["commits"], content["digest"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"digest": digest}))
    assert Ledger(DiskFolder(str(tmp_path))).newest() == replace(
        record(42), free_ids={}, commits_before=None
    )


def test_a_note_of_a_job_names_it(tmp_path: Path) -> None:
    """Versions need not follow each other; as many notes as else are kept."""
    ledger = Ledger(DiskFolder(str(tmp_path)))
    notes = [
        replace(record(version), app_id="nightly")
        for version in (20261127, 20261130, 20261201, 20270104)
    ]
    for note in notes:
        ledger.write(note)
        assert ledger.newest() == note
    assert notes[-1].label == "txnVersion 20270104 of 'nightly'"
    assert len(list(tmp_path.iterdir())) == KEPT
    assert json.loads((tmp_path / f"{20270104:020}.json").read_text())["app"] == "nightly"


def test_a_record_is_void_when_nothing_of_it_can_be_committed() -> None:
    """Slots without rows do not count."""
    lost = SLOT.becomes(SlotState.LOST)
    assert record(1, s0=lost, s1=EMPTY).is_void
    assert not record(1, s0=lost, s1=SLOT).is_void
    assert not record(1, s0=EMPTY).is_void


@pytest.mark.parametrize("position", range(0, 330, 7))
def test_a_changed_byte_is_never_taken_for_good(tmp_path: Path, position: int) -> None:
    """The error names the file; an older one is not taken in its place."""
    ledger = Ledger(DiskFolder(str(tmp_path)))
    ledger.write(record(1))
    ledger.write(record(2))
    path = tmp_path / f"{2:020}.json"
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=path.name):
        ledger.newest()


def test_a_crash_leaves_the_old_record_or_the_new_one() -> None:
    """At every file operation of a write; what it has returned from outlives a loss of power."""
    before = MemoryFiles()
    for number in range(KEPT + 1):
        Ledger(DiskFolder("/c", before)).write(record(number))
    old, new = record(KEPT), record(KEPT + 1)
    stop, is_over = 0, False
    while not is_over:
        files = before.crash()
        files.stop_at = stop
        try:
            Ledger(DiskFolder("/c", files)).write(new)
            is_over = True
        except ProcessKilledError:
            pass
        for disk in (
            files.crash(),
            files.crash(keep_unsynced=True),
            files.crash(chance=random.Random(stop)),
        ):
            found = Ledger(DiskFolder("/c", disk)).newest()
            assert found == new if is_over else found in (old, new), f"stopped at {stop}"
        stop += 1
    assert stop > 5


def checkpoint(folder: Path, *, offsets: dict[int, list[str]], commits: list[int]) -> Checkpoint:
    """A checkpoint as Spark writes it."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6c3b"}')
    (folder / "offsets" / ".0.crc").write_bytes(b"crc")
    for number, lines in offsets.items():
        (folder / "offsets" / str(number)).write_text("\n".join(lines))
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint(str(folder))


def test_the_query_its_batches_and_its_groups_are_found(tmp_path: Path) -> None:
    """Positions of two sources with groups, one without, and one that is not ours."""
    found = checkpoint(
        tmp_path,
        offsets={
            8: ["v1", "{}", '{"t": {"0": 1}, "@group": "old"}'],
            9: [
                "v1",
                "{}",
                '{"t": {"0": 7, "1": 2}, "@from": {"t": {"0": 1}}, "@group": "g"}',
                '{"u": {"0": 9}}',
                "-",
                '{"logOffset":3}',
                '{"v": {"4": 5}, "@group": "h"}',
            ],
        },
        commits=[8],
    )
    assert found.query_id() == "6c3b"
    assert (found.is_committed(8), found.is_committed(9)) == (True, False)
    assert found.group_offsets() == (
        9,
        {
            "g": {TopicPartition("t", 0): 7, TopicPartition("t", 1): 2},
            "h": {TopicPartition("v", 4): 5},
        },
    )
    found.ledger().write(record(9))
    assert (tmp_path / "tailrace-commits" / f"{9:020}.json").exists()


def test_a_version_of_offsets_that_is_not_known_is_refused_only_for_groups(
    tmp_path: Path,
) -> None:
    """Without a group nothing of the file matters."""
    plain = checkpoint(tmp_path / "a", offsets={3: ["v9", "{}", '{"t": {"0": 1}}']}, commits=[])
    assert plain.group_offsets() == (3, {})
    line = json.dumps({"t": {"0": 1}, "@group": "g"})
    grouped = checkpoint(tmp_path / "b", offsets={3: ["v9", "{}", line]}, commits=[])
    with pytest.raises(FatalError, match=r"v9.*leave out groupId"):
        grouped.group_offsets()


@pytest.mark.parametrize("content", [b"", b"v1", b"v1\n{}\n\xff\xfe", b"v1\n{}\n" + b"[" * 100_000])
def test_a_torn_file_of_offsets_has_no_group(tmp_path: Path, content: bytes) -> None:
    """Spark refuses such a file itself; the sink looks for groups in it, and finds none."""
    found = checkpoint(tmp_path, offsets={3: []}, commits=[])
    (tmp_path / "offsets" / "3").write_bytes(content)
    assert found.group_offsets() == (3, {})


def test_a_checkpoint_that_is_not_to_be_seen_is_an_error(tmp_path: Path) -> None:
    """The sentence says what to give."""
    with pytest.raises(FatalError, match=r"as seen from this process.*checkpointLocation"):
        Checkpoint(str(tmp_path)).query_id()
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(FatalError, match="not what Spark writes"):
        Checkpoint(str(tmp_path)).query_id()


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("/a/b/", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("hdfs://host/a", "hdfs://host/a"),
        ("a/b", "a/b"),
        ("/", "/"),
    ],
)
def test_a_location_is_opened_where_hadoop_opens_it(given: str, opened: str) -> None:
    """PyArrow has other names for some of them."""
    assert arrow_location(given) == opened
