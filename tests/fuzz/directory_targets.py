"""Whole directories with damage in them, under everything that opens, reads or changes one.

What comes back is held against what was written, byte for byte. Only this escapes everybody, as
nothing in the format tells:

* that batches or whole segments are gone from the start or the end of the log, where they end
  between two batches, or from its middle on a compacted topic;
* the base offset of a batch that has missing offsets beside it, or that is the last one, as long as
  it stays above what is before it and below what is behind;
* a leader epoch, where `leader-epoch-checkpoint` does not say otherwise;
* that a log file has the batches of another partition;
* that a `.swap` file has the batches of a segment behind its own: those that it replaces go.
"""

import json
import random
from collections.abc import Iterable, Iterator, Sequence

from tailrace.errors import CorruptionError, DirectoryError
from tailrace.kernels.showing import Form
from tailrace.model import Offset, TopicPartition
from tailrace.offline import cat
from tailrace.offline.explain import explain_partition
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.repair import apply_repair
from tailrace.offline.repair_plan import plan_repair
from tailrace.offline.scan import scan_partition
from tailrace.offline.show import ShownRecord, to_json
from tailrace.offline.verify import verify
from tailrace.reading.damage import Drop, OnDamage, find_damage
from tailrace.reading.directory import DataDirectory, find_partitions, list_segments
from tailrace.reading.listing import SegmentFiles, open_segments
from tailrace.reading.reader import open_log_reader
from tailrace.records.batch import Batch
from tailrace.records.builder import records_of
from tailrace.records.legacy import read_all_batches
from tailrace.storage import names
from tailrace.storage.cleaner.key_map import KeyMap
from tailrace.storage.cleaner.plan import CleaningPlan
from tailrace.storage.cleaner.rewrite import CleaningRound, Pace
from tailrace.storage.log import Log
from tailrace.storage.offset_lookup import find_offset
from tailrace.storage.records_file import open_records_file
from tailrace.storage.segment import Segment
from tailrace.testing import MemoryFiles
from tests.fuzz.directories import (
    ROOT,
    Directory,
    all_paths,
    damage,
    directories,
    written_as,
)
from tests.fuzz.engine import DamageTarget
from tests.unit.storage.builders import FOLDER, NOW, PARTITION, SetClock, append, batch, open_at

_BYTES_IN_PLACE = {"flip", "set", "cut", "add", "repeat", "zero"}
"""Damage that leaves every file under its name, and takes out nothing from the middle of one."""


def hold(directory: Directory, found: Sequence[Batch]) -> list[int]:
    """The places, among what was written, of batches that have been read and were not moved.

    Each was written as it is, and offsets rise.
    """
    places = recognise(directory, found)
    for number, (each, place) in enumerate(zip(found, places, strict=True)):
        original = directory.written[place]
        before = found[number - 1] if number else None
        after = found[number + 1] if number + 1 < len(found) else None
        assert before is None or before.last_offset < each.base_offset
        if each.base_offset != original.base_offset:
            has_room = (
                before is None
                or after is None
                or before.next_offset < each.base_offset
                or each.next_offset < after.base_offset
            )
            assert has_room, f"{each} was written at {original.base_offset}"
    # An entry of an older format may get the content of another under its own offset.
    return [
        place
        for each, place in zip(found, places, strict=True)
        if each.base_offset == directory.written[place].base_offset
    ]


def recognise(directory: Directory, found: Iterable[Batch]) -> list[int]:
    """The places, among what was written, of batches whose checksums hold; each is one of them."""
    places = []
    for each in found:
        each.check()
        original = directory.known.get(written_as(each).content)
        assert original is not None, f"{each} was never written"
        places.append(directory.written.index(original))
    return places


def located(error: CorruptionError) -> None:
    """Every error says where."""
    assert error.path is not None, error
    assert error.path.startswith(ROOT), error
    is_log = error.path.endswith(names.LOG_SUFFIX)
    assert not is_log or error.position is not None or "more than the" in error.rule, error


def _read(batches: Iterable[Batch]) -> tuple[list[Batch], CorruptionError | None]:
    """Return the batches before the first damage, and the damage."""
    found = []
    try:
        for each in batches:
            each.check()
            found.append(each)
    except CorruptionError as error:
        return found, error
    return found, None


def _some(chance: random.Random) -> tuple[Directory, MemoryFiles]:
    directory = chance.choice(directories())
    return directory, directory.copy()


def read(chance: random.Random) -> int:
    """Read the folder beside a broker: all of it, and from somewhere in the middle."""
    directory, files = _some(chance)
    damage(chance, files)
    try:
        reader = open_log_reader(files, FOLDER)
        start, end = reader.start_offset, reader.end_offset
        for first in (start, chance.randint(start, end)):
            found, error = _read(reader.batches(Offset(first), end))
            hold(directory, found)
            if error is not None:
                located(error)
    except CorruptionError as error:
        located(error)
    return 0


def _opened(directory: Directory, files: MemoryFiles, *, is_clean: bool) -> Log | None:
    """The log, if it can be opened; no byte of it has vanished from its folder either way."""
    end = directory.written[-1].last_offset + 1
    is_exchange = _is_exchange(files)
    before, sound = _log_bytes(files), _sound_contents(files)
    try:
        return open_at(
            files,
            config=directory.config,
            is_clean=is_clean,
            checkpoints=(end, 0) if is_clean else (0, 0),
        )
    except CorruptionError as error:
        located(error)
        return None
    finally:
        # What a compaction replaces may go.
        assert is_exchange or _log_bytes(files) >= before
        _hold_contents(files, sound)


def _is_exchange(files: MemoryFiles) -> bool:
    """Whether there is a segment that compaction has made and not put in place yet."""
    return any(path.endswith(names.SWAP_SUFFIX) for path in all_paths(files))


def _log_bytes(files: MemoryFiles) -> int:
    """Bytes other than zero in logs and in what was taken out of them."""
    count = 0
    for path in all_paths(files, FOLDER):
        name = path.rpartition("/")[2]
        parsed = names.parse_segment_file_name(name)
        is_log = parsed is not None and parsed[1] == names.LOG_SUFFIX
        if is_log or name.endswith(names.KEPT_SUFFIX):
            content = files.content(path)
            count += len(content) - content.count(0)
    return count


def _sound_contents(files: MemoryFiles) -> set[bytes]:
    """Return the bytes under the checksums of all sound batches, those of older formats apart.

    In an exchange that is half done, the `.swap` files are the log if they can be put in place;
    otherwise the segments that they replace have to stay too.
    """
    try:
        segments, listed = list_segments(files, FOLDER)
    except DirectoryError:
        return set()
    swaps = [each.path for each in segments if each.path.endswith(names.SWAP_SUFFIX)]
    if not all(_is_whole(files, path) for path in swaps):
        old = [each for each in listed if not each.endswith(names.SWAP_SUFFIX)]
        segments += open_segments(files, FOLDER, old)
    found = set()
    for segment in segments:
        content = files.content(segment.path)
        start = 0
        for drop in [*_drops(files, [segment]), None]:
            part = content[start : len(content) if drop is None else drop.position]
            found |= {written_as(each).content for each in _batches(part) if each.legacy is None}
            start = 0 if drop is None else drop.position + drop.size_bytes
    return found


def _batches(data: bytes) -> Iterator[Batch]:
    """The batches up to the end, or up to zeros, which were allocated in advance."""
    reader = read_all_batches(memoryview(data))
    while any(data[reader.position :]):
        read = next(reader, None)
        if read is None:
            return
        yield read[1]


def _is_whole(files: MemoryFiles, path: str) -> bool:
    """Whether every checksum of a log file holds, up to its end."""
    log = open_records_file(files, path, read_only=True)
    try:
        return max((each.end for each in log.checked()), default=0) == log.size
    except CorruptionError:
        return False
    finally:
        log.close()


def _drops(files: MemoryFiles, segments: Sequence[SegmentFiles]) -> Sequence[Drop]:
    return find_damage(files, segments, OnDamage.SKIP).drops


def _contents(files: MemoryFiles) -> dict[str, bytes]:
    return {path: files.content(path) for path in all_paths(files, FOLDER)}


def _hold_contents(files: MemoryFiles, sound: set[bytes]) -> None:
    """Each of these batches is in some file of the folder."""
    everything = b"".join(files.content(path) for path in all_paths(files, FOLDER))
    lost = [each for each in sound if each not in everything]
    assert not lost, f"{len(lost)} sound batches are nowhere"


def open_clean(chance: random.Random) -> int:
    """Open after an orderly stop, read up to the damage, and open once more.

    As in Kafka nobody looks at what was on the device, so offsets are not held here: a client gets
    bytes as they are, and finds out by their checksums.
    """
    directory, files = _some(chance)
    damage(chance, files)
    seen = []
    for _ in range(2):
        log = _opened(directory, files, is_clean=True)
        if log is None:
            return 0
        found, _ = _read(log.batches(log.start_offset))
        seen.append((recognise(directory, found), log.start_offset, log.end_offset))
        for offset in (log.start_offset, log.end_offset // 2):
            if log.start_offset <= offset <= log.end_offset:
                try:
                    log.read(offset, bytes_max=300, is_first_whole=True)
                    find_offset(log, NOW + offset)
                except CorruptionError as error:
                    located(error)
        log.finish()
        log.close()
    assert seen[0] == seen[1]
    return len(seen[0])


def recover(chance: random.Random) -> int:
    """Open after a crash: an unbroken run of what was written, which takes an append."""
    directory, files = _some(chance)
    done = damage(chance, files)
    is_exchange = _is_exchange(files)
    log = _opened(directory, files, is_clean=False)
    if log is None:
        return 0
    places = hold(directory, list(log.batches(log.start_offset)))
    kinds = {kind for kind, _ in done}
    may_have_gaps = "take_out" in kinds or (is_exchange and "swap" in kinds)
    if not directory.config.is_compacted and not may_have_gaps:
        assert not places or places == list(range(places[0], places[-1] + 1))
        if kinds <= _BYTES_IN_PLACE:
            assert not places or places[0] == 0
    before = [bytes(each.view) for each in log.batches(log.start_offset)]
    end = log.end_offset
    log.close()
    log = open_at(files, config=directory.config)
    assert [bytes(each.view) for each in log.batches(log.start_offset)] == before
    assert log.end_offset == end
    if end < 2**62:
        assert append(log, batch(b"one more")).base_offset == end
        log.finish()
        log.close()
        log = open_at(files, config=directory.config, is_clean=True, checkpoints=(end + 1, 0))
        assert [bytes(each.view) for each in log.batches(log.start_offset)][:-1] == before
        assert log.end_offset == end + 1
    log.close()
    return len(places)


def _verified(files: MemoryFiles) -> list[Finding] | None:
    try:
        return list(verify(files, find_partitions(files, ROOT)))
    except DirectoryError:
        return None  # Nothing is left by which this can be told to be a log directory.


def find(chance: random.Random) -> int:
    """Verify: a log that is not what it was gives a finding, but for what nobody can see."""
    directory, files = _some(chance)
    done = damage(chance, files)
    found = _verified(files)
    if found is None:
        return 0
    for each in found:
        assert each.path.startswith(ROOT)
        assert each.sentence
    new = {str(each) for each in found} - {str(each) for each in _verified(directory.files) or ()}
    if new or not _is_log_damaged(directory, files):
        return len(new)
    raise AssertionError(f"{directory.name}: {done} was not found")


def _is_log_damaged(directory: Directory, files: MemoryFiles) -> bool:
    """Whether log files hold anything else than a part of what was written, in its place."""
    here: list[Batch] = []
    for segment in list_segments(files, FOLDER)[0]:
        data = files.content(segment.path)
        try:
            reader = read_all_batches(memoryview(data))
            here += [each for _, each in reader]
        except CorruptionError:
            return True
        if reader.position != len(data):
            return True
    try:
        places = hold(directory, here)
    except (AssertionError, CorruptionError):
        return True
    # Whole batches that are gone from the start or the end leave no trace.
    is_run = not places or places == list(range(places[0], places[-1] + 1))
    return not (is_run or directory.config.is_compacted)


def mend(chance: random.Random) -> int:
    """Repair: afterwards nothing is wrong, what is left is sound, and a broker opens it."""
    directory, files = _some(chance)
    damage(chance, files)
    on_damage = chance.choice(tuple(OnDamage))
    # What an exchange has to put in place comes first, and then what is wrong besides.
    rounds = 1 + _is_exchange(files)
    advised: set[tuple[str, Rule]] = set()
    for _ in range(rounds):
        before, sound = _contents(files), _sound_contents(files)
        try:
            found = find_partitions(files, ROOT)
        except DirectoryError:
            return 0  # Nothing is left by which this can be told to be a log directory.
        plan = plan_repair(files, found, on_damage)
        cuts = apply_repair(files, plan, clock=SetClock())
        _hold_contents(files, sound)
        advised = {(each.path, each.rule) for each in plan.advice}
        if any(each.path.endswith(names.SWAP_SUFFIX) for each in list_segments(files, FOLDER)[0]):
            # What a compaction has made has damage, and the operator decides; or nothing is wrong
            # with it or beside it, and the next start puts it in place.
            assert advised or all(each.severity is Severity.INFO for each in _verified(files) or ())
            assert _contents(files) == before
            return 0
        assert rounds == 2 or not cuts, f"{cuts} after {plan}"
    left = [
        each
        for each in _verified(files) or ()
        if each.severity is not Severity.INFO
        and each.rule is not Rule.SEQUENCE
        and (each.path, each.rule) not in advised
    ]
    assert not left, [str(each) for each in left]
    again = plan_repair(files, find_partitions(files, ROOT), on_damage)
    assert again.is_empty, again
    log = _opened(directory, files, is_clean=True)
    assert log is not None
    hold(directory, list(log.batches(log.start_offset)))
    log.close()
    return rounds


def bring_back(chance: random.Random) -> int:
    """Recover, perhaps append, and repair: what comes back was written, and no byte is lost."""
    directory, files = _some(chance)
    damage(chance, files)
    log = _opened(directory, files, is_clean=False)
    if log is None:
        return 0
    known = {bytes(each.view[16:]) for each in log.batches(log.start_offset)}
    if chance.randrange(2) and log.end_offset < 2**62:
        data = batch(b"one more")
        append(log, data, epoch=max(log.epochs.latest, 0))
        known.add(bytes(data[16:]))
    log.finish()
    log.close()
    before, sound = _log_bytes(files), _sound_contents(files)
    try:
        found = find_partitions(files, ROOT)
    except DirectoryError:
        return 0  # Nothing is left by which this can be told to be a log directory.
    plan = plan_repair(files, found, OnDamage.SKIP)
    apply_repair(files, plan, clock=SetClock())
    _hold_contents(files, sound)
    # The epoch of a batch may become one with fewer bytes other than zero.
    assert any(each.restamped for each in plan.partitions) or _log_bytes(files) >= before
    known |= directory.known.keys() | {each.content for each in directory.written}
    log = _opened(directory, files, is_clean=True)
    assert log is not None
    end = log.start_offset
    for each in log.batches(log.start_offset):
        each.check()
        assert bytes(each.view[16:]) in known
        assert each.base_offset >= end or each.base_offset == 0
        end = each.next_offset
    log.close()
    return sum(len(each.restores) for each in plan.partitions)


def clean(chance: random.Random) -> int:
    """A round of cleaning over the segments: the right records or a refusal; all is as it was."""
    directory, files = _some(chance)
    damage(chance, files)
    log = _opened(directory, files, is_clean=True)
    if log is None:
        return 0
    segments = tuple(log.segments)
    if len(segments) == 1:
        return 0  # Nothing but the active segment, which is never cleaned.
    active = segments[-1].base_offset
    first_dirty = chance.choice([each.base_offset for each in segments])
    before = {path: files.content(path) for path in all_paths(files)}
    cleaning = CleaningRound(
        files,
        FOLDER,
        segments=segments,
        config=directory.config,
        plan=CleaningPlan(
            first_dirty=first_dirty,
            first_uncleanable=active,
            clean_bytes=0,
            cleanable_bytes=1,
            delay_ms=0,
            is_due=True,
        ),
        key_map=KeyMap(1 << 12),
        now_ms=NOW,
        pace=Pace(pause=lambda _: None, check=lambda: None),
    )
    obsolete: list[int] = []
    try:
        end = cleaning.map_keys()
        newest = _newest(segments, range(first_dirty, end))
        for group in cleaning.groups():
            made = cleaning.rewrite(group, producers={})
            if newest is not None:
                obsolete += _hold_cleaned(directory, group, made, newest)
            for path in made.paths():
                files.remove(path)
            made.close()
        # What the map has missed of a damaged segment stays until that segment's turn comes.
        assert not obsolete
    except CorruptionError as error:
        located(error)
    assert {path: files.content(path) for path in all_paths(files)} == before
    log.close()
    return 0


def _newest(segments: Sequence[Segment], offsets: range) -> dict[bytes | None, int] | None:
    """The newest offset of every key in some offsets, aborted ones left to the product.

    None if there is damage, which the round may not have come to.
    """
    try:
        return _newest_sound(segments, offsets)
    except CorruptionError:
        return None


def _newest_sound(segments: Sequence[Segment], offsets: range) -> dict[bytes | None, int]:
    return {
        record.key: record.offset
        for segment in segments
        if segment.base_offset < offsets.stop
        for _, each in segment.log.batches()
        if each.check() is None and not each.is_transactional  # type: ignore[func-returns-value]
        if each.base_offset < offsets.stop
        if each.last_offset >= offsets.start
        for record in records_of(each)
        if record.offset in offsets
    }


def _hold_cleaned(
    directory: Directory, group: Sequence[Segment], made: Segment, newest: dict[bytes | None, int]
) -> list[int]:
    """Offsets that should have gone, in a new segment that has all the rest."""
    given = {
        record.offset: record
        for segment in group
        for _, each in segment.log.batches()
        for record in records_of(each)
    }
    end, obsolete = -1, list[int]()
    for _, each in made.log.batches():
        each.check()
        assert each.base_offset > end
        end = each.last_offset
        for record in records_of(each):
            kept = given.pop(record.offset)
            assert (record.key, record.value, record.headers) == kept[2:5], (record, kept)
            assert record.timestamp == kept.timestamp
            if not each.is_transactional and record.offset < newest.get(record.key, -1):
                obsolete.append(record.offset)
    if directory.name == "transactions":
        return obsolete  # Aborted records go, and markers in their time.
    lost = [
        each
        for each in given.values()
        if each.key is not None and each.value is not None and len(each.key) != 4
        if each.offset >= newest.get(each.key, -1)
    ]
    assert not lost, lost
    return obsolete


def look(chance: random.Random) -> int:
    """Scan, explain and show: what is shown was written; a refusal says where."""
    directory, files = _some(chance)
    damage(chance, files)
    flights = TopicPartition("flights", 0)
    partitions = {flights: FOLDER}
    root = DataDirectory(path=ROOT, partitions=partitions)
    assert root.partitions
    scan_partition(files, ROOT, PARTITION, folder=FOLDER)
    explain_partition(files, ROOT, PARTITION, folder=FOLDER, config=directory.config, now_ms=NOW)
    known = {
        _content(to_json(ShownRecord(flights, record, each.is_control)))
        for segment in list_segments(directory.files, FOLDER)[0]
        for _, each in read_all_batches(memoryview(directory.files.content(segment.path)))
        for record in records_of(each)
    }
    try:
        for page in cat.show_records(files, partitions, cat.Choice(), form=Form.JSON):
            assert all(_content(line) in known for line in page.decode().split("\n")[:-1])
    except CorruptionError as error:
        located(error)
    return 0


def _content(line: str) -> str:
    """Return a record that is shown in JSON without its offset and timestamp."""
    shown = json.loads(line)
    return json.dumps({**shown, "offset": None, "timestamp": None})


TARGETS: tuple[DamageTarget, ...] = (
    DamageTarget(name="read a damaged folder", run=read, share=0.5),
    DamageTarget(name="open it after an orderly stop", run=open_clean, share=0.5),
    DamageTarget(name="recover it", run=recover, share=0.5),
    DamageTarget(name="verify it", run=find, share=0.5),
    DamageTarget(name="repair it", run=mend, share=0.25),
    DamageTarget(name="recover it and bring back what was cut", run=bring_back, share=0.5),
    DamageTarget(name="clean its segments", run=clean, share=0.5),
    DamageTarget(name="scan, explain and show it", run=look, share=0.5),
)
