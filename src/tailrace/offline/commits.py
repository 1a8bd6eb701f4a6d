"""Committed offsets of groups, from the `__consumer_offsets` partitions of a directory.

    transactional batch of producer 7    g, flights-0: 40      pending
    batch                                g, flights-0: 30      the last committed offset is 30
    commit marker of producer 7                                still 30: it was written later
    tombstone                            g, flights-0          nothing is committed, or pending

A commit inside of a transaction counts from its marker on, and then only if no later record has
committed the same partition meanwhile; an abort marker drops it. What has no marker at the end of
the log is pending. These are the rules by which Kafka's coordinator loads the same records.

`decode_group_record` gives one record as named fields, for people and for JSON.

Not here: the bytes of keys and values (`protocol.coordinator_records`), and the groups of newer
protocols: their records are counted, and their offset commits are those of all groups.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.errors import DirectoryError
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    Versioned,
    decode_key,
    decode_value,
    record_type,
)
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.protocol.fields import fields_in
from tailrace.protocol.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tailrace.reading.directory import DataDirectory, unreadable
from tailrace.reading.listing import settled
from tailrace.reading.located import OnSkip
from tailrace.reading.lookup import find_end
from tailrace.reading.reader import partition_folders
from tailrace.reading.view import UNREADABLE, open_view
from tailrace.records.batch import Batch
from tailrace.records.builder import Record, records_of
from tailrace.records.control import ControlType, end_transaction_marker_or_none
from tailrace.runtime.files import Files
from tailrace.values import dataclass, field

OffsetCommit = Versioned[OffsetCommitValue]
GroupMetadata = Versioned[GroupMetadataValue]

MALFORMED = "malformed record"
"""Name under which records of a known type and version are counted if their format is wrong."""


def decode_group_key(key: bytes | None) -> OffsetCommitKey | GroupMetadataKey:
    """The key of an offset commit or of a classic group.

    Type 0, of brokers before 0.9, and type 1 have the same fields, and are the same key.

    Raises:
        UnknownRecordError: the key is of another type.
        MalformedRecordError: there is no key, or it is not of its format.
    """
    kind = record_type(GroupRecordType, key)
    assert key is not None
    match kind:
        case GroupRecordType.LEGACY_OFFSET_COMMIT | GroupRecordType.OFFSET_COMMIT:
            return decode_key(OffsetCommitKey, key)
        case GroupRecordType.GROUP_METADATA:
            return decode_key(GroupMetadataKey, key)
        case _:
            raise UnknownRecordError(what="key type", number=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """The committed offset and the lag of one group in one partition."""

    group: str
    partition: TopicPartition
    committed: OffsetCommit | None
    """The last commit; None if all there is is pending."""
    pending: tuple[OffsetCommit, ...]
    """Commits in transactions without a marker, in the order of their records."""
    log_end_offset: int | None
    """End of the partition's log; None if the partition is not in the directory."""

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the log end, negative after that end."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset

    @property
    def committed_offset(self) -> int | None:
        """The committed offset; None for a commit of -1, which means none."""
        if self.committed is None or self.committed.value.offset < 0:
            return None
        return self.committed.value.offset


@dataclass(slots=True, kw_only=True)
class GroupsFound:
    """Groups and committed offsets of a directory."""

    offsets: list[GroupOffset] = field(default_factory=list)
    """Sorted by group, topic and partition."""
    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    """Classic groups by id, as of their last rebalance."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Records that were not read, by what is not known of them."""


class _Stored(NamedTuple):
    """A commit, and the offset of its record."""

    offset: int
    commit: OffsetCommit


class CommitWalk:
    """The groups of one `__consumer_offsets` partition up to the batch that was seen last."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadata] = {}
        self.unknown: Counter[str] = Counter()
        self._committed: dict[OffsetCommitKey, _Stored] = {}
        # Commits in open transactions, by producer id.
        self._pending: defaultdict[int, dict[OffsetCommitKey, _Stored]] = defaultdict(dict)

    def see(self, batch: Batch) -> None:
        """Take the records of a sound batch, or the marker that it is.

        Raises:
            CorruptionError: a record breaks a rule of the format.
            UnsupportedCodecError: the attributes have codec 5, 6 or 7.
        """
        if batch.is_control:
            self._see_marker(batch)
            return
        for record in records_of(batch):
            try:
                self._see_record(record, batch.producer_id if batch.is_transactional else None)
            # Counted and not raised: later brokers add types (KIP-848 did), and the others can be
            # read.
            except UnknownRecordError as error:
                self.unknown[f"{error.what} {error.number}"] += 1
            except MalformedRecordError:
                self.unknown[MALFORMED] += 1

    def committed(self) -> dict[OffsetCommitKey, OffsetCommit]:
        return {key: stored.commit for key, stored in self._committed.items()}

    def pending(self) -> dict[OffsetCommitKey, tuple[OffsetCommit, ...]]:
        """Commits of transactions that are still open, in the order of their records."""
        found: defaultdict[OffsetCommitKey, list[_Stored]] = defaultdict(list)
        # Several producers may have pending commits of one key.
        for commits in self._pending.values():
            for key, stored in commits.items():
                found[key].append(stored)
        return {
            key: tuple(each.commit for each in sorted(stored, key=lambda one: one.offset))
            for key, stored in found.items()
        }

    def _see_marker(self, batch: Batch) -> None:
        marker = end_transaction_marker_or_none(batch)
        # Emptied by compaction, or another kind of control record: no transaction ends here.
        if marker is None:
            return
        # Whatever the marker says, nothing of this transaction is pending any more.
        ended = self._pending.pop(batch.producer_id, {})
        if marker.type is ControlType.COMMIT:
            for key, stored in ended.items():
                known = self._committed.get(key)
                # By the offset of the record, as the coordinator does: a plain commit that came
                # later counts.
                if known is None or known.offset < stored.offset:
                    self._committed[key] = stored

    def _see_record(self, record: Record, producer_id: int | None) -> None:
        key = decode_group_key(record.key)
        if isinstance(key, GroupMetadataKey):
            if record.value is None:
                self.groups.pop(key.group, None)
            else:
                self.groups[key.group] = decode_value(GroupMetadataValue, record.value)
        elif record.value is None:
            self._committed.pop(key, None)
            for commits in self._pending.values():
                # A deleted offset does not come back with the end of a transaction.
                commits.pop(key, None)
        else:
            stored = _Stored(record.offset, decode_value(OffsetCommitValue, record.value))
            if producer_id is None:
                self._committed[key] = stored
            else:
                self._pending[producer_id][key] = stored


def find_groups(
    files: Files, directory: DataDirectory, *, on_skip: OnSkip | None = None
) -> GroupsFound:
    """Read the committed offsets of all groups from the files of a directory.

    With `on_skip` damage is reported to it and skipped; the last commits of groups may be in it.

    Raises:
        CorruptionError: a batch is damaged and may not be skipped.
        DirectoryError: there is no `__consumer_offsets` partition, or a file cannot be read.
    """
    found = GroupsFound()
    folders = {
        partition: folder
        for partition, folder in directory.partitions.items()
        if partition.topic == OFFSETS_TOPIC
    }
    if not folders:
        raise DirectoryError(
            f"{directory.path} has no partition of {OFFSETS_TOPIC}: the groups of its topics have "
            "committed in another log directory, or nothing; give that directory"
        )
    try:
        known = partition_folders(files, directory.path)
        for partition, folder in folders.items():
            walk = _walk_partition(files, folder, partition, on_skip=on_skip)
            found.groups |= walk.groups
            found.unknown += walk.unknown
            found.offsets += _offsets_of(files, walk, known=known)
    except DirectoryError:
        raise
    except OSError as error:
        raise unreadable(str(error.filename or directory.path), error) from error
    # A group is in one partition of the topic, and the folders come in their own order.
    found.offsets.sort(key=lambda each: (each.group, each.partition))
    return found


def _walk_partition(
    files: Files, folder: str, partition: TopicPartition, *, on_skip: OnSkip | None
) -> CommitWalk:
    walk = CommitWalk()
    log = open_view(files, folder, partition, on_skip=on_skip)
    for stored in log.batches(log.reader.start_offset, log.reader.end_offset):
        try:
            walk.see(stored.batch)
        except UNREADABLE as error:
            log.leave_out(stored, error)
    log.finish()
    return walk


def _offsets_of(
    files: Files, walk: CommitWalk, *, known: dict[TopicPartition, str]
) -> Iterable[GroupOffset]:
    committed, pending = walk.committed(), walk.pending()
    # Many groups read the same partitions, and to find an end opens files.
    ends: dict[TopicPartition, int | None] = {}
    for key in committed.keys() | pending.keys():
        partition = TopicPartition(key.topic, key.partition)
        if partition not in ends:
            folder = known.get(partition)
            ends[partition] = None if folder is None else _end_of(files, folder)
        yield GroupOffset(
            group=key.group,
            partition=partition,
            committed=committed.get(key),
            pending=pending.get(key, ()),
            log_end_offset=ends[partition],
        )


def _end_of(files: Files, folder: str) -> int | None:
    """The end of a log; None if a broker has just deleted it."""
    try:
        return settled(files, folder, lambda segments, _: find_end(files, segments))
    # A log file is missing from a folder that is there: that is no deletion.
    except FileNotFoundError:
        if files.is_directory(folder):
            raise
        return None


Fields = dict[str, object]


def decode_group_record(key: bytes | None, value: bytes | None) -> Fields | None:
    """The fields by name, or None where this is no record of a known type and version."""
    try:
        return _decode(key, value)
    except (MalformedRecordError, UnknownRecordError):
        return None


def _decode(key: bytes | None, value: bytes | None) -> Fields:
    found = decode_group_key(key)
    fields: Fields
    if isinstance(found, GroupMetadataKey):
        fields = {"type": "group", "group": found.group}
    else:
        fields = {
            "type": "offset-commit",
            "group": found.group,
            "topic": found.topic,
            "partition": found.partition,
        }
    if value is None:
        return {**fields, "tombstone": True}
    if isinstance(found, GroupMetadataKey):
        group = decode_value(GroupMetadataValue, value).value
        return {**fields, "protocol_type": group.protocol_type, "generation": group.generation}
    version, commit = decode_value(OffsetCommitValue, value)
    names = [field.name for field in fields_in(OffsetCommitValue, version)]
    return {**fields, **{name: getattr(commit, name) for name in names}}
