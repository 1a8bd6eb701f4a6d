"""States of a cluster from the files of its metadata log, at each moment that they still have.

    newest snapshot before the moment -> batch by batch up to the moment

Where the log is missing or damaged the next snapshot continues, and the state jumps. All is read
from files alone, so those of a dead node, or a copy of them, are enough. On a node that is one of
several voters the last records may not be committed yet, and are shown all the same.

`image_tree` gives a state as nested names and values of JSON, `metadata_changes` the values that
differ between two. Secrets are as in `tailrace.offline.metadata`: a new password of a user is a
change, one in a setting is not seen.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import ConfigResource, MetadataImage, QuotaEntity, TopicState
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import Snapshot
from tailrace.cluster.metadata.snapshot_files import SnapshotFile, find_snapshots, load_snapshot
from tailrace.errors import CorruptionError, TailraceError, UnsupportedCodecError
from tailrace.model import METADATA_TOPIC, Offset, Position, TopicPartition
from tailrace.offline.cat import parse_time, readable
from tailrace.offline.metadata import credential_fields, record_fields, shown_setting
from tailrace.protocol.errors import MalformedRecordError, UnknownRecordError
from tailrace.protocol.metadata_records import UserScramCredentialRecord, VotersRecord
from tailrace.reading.located import OnSkip, Skipped
from tailrace.reading.view import open_view
from tailrace.records.batch import UnsupportedMagicError
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import format_topic_id
from tailrace.values import dataclass

PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
FOLDER: Final = str(PARTITION)
DAMAGED: Final = (
    CorruptionError,
    MalformedRecordError,
    MetadataFaultError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
"""The errors of files that are damaged, and not of a later release."""


class NoMetadataError(TailraceError):
    """The directory has no metadata log, or none that goes back so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataState:
    """The cluster at one moment."""

    image: MetadataImage
    next_offset: int
    """It is the state of all records below this offset."""
    timestamp: int
    """Time of the last of them, in milliseconds since 1970."""
    epoch: int
    """Epoch of the quorum's leader that wrote it."""
    voters: VotersRecord | None
    """The voters, where the log names them (KIP-853)."""
    is_jump: bool
    """Whether it is a snapshot: the changes since the state before have no moments of their own."""


class Moment(NamedTuple):
    """End of what counts: the offset after it, its last millisecond since 1970, or neither."""

    offset: int | None = None
    time_ms: int | None = None

    def includes(self, next_offset: int, timestamp: int) -> bool:
        """Whether records that end at `next_offset`, the last of this time, belong before it."""
        # The state at offset N is that of all records below N, as snapshots are named.
        if self.offset is not None:
            return next_offset <= self.offset
        return self.time_ms is None or timestamp <= self.time_ms

    def __str__(self) -> str:
        return f"time {self.time_ms}" if self.offset is None else f"offset {self.offset}"


END: Final = Moment()
"""The end of the log."""


def parse_moment(text: str) -> Moment:
    """An offset, of up to 12 digits, or a time as `parse_time` reads it.

    Raises:
        ValueError: neither of the two; the message says so.
    """
    # Today's milliseconds have 13 digits, and no metadata log has 10^12 records.
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return Moment(offset=int(text))
    try:
        return Moment(time_ms=parse_time(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an offset nor a time such as 2026-05-01T12:00"
        ) from None


def damage_text(damage: Skipped) -> str:
    """A sentence about what `metadata_states` has left out."""
    place = f"{damage.file}, position {damage.position}: {damage.reason}"
    if damage.next_offset is None:
        return f"the log is left out from offset {damage.first_offset} on: {place}"
    return f"the snapshot of offset {damage.next_offset} is left out: {place}"


def metadata_folder(files: Files, directory: str) -> str:
    """The folder of the metadata log: the directory itself, or the one in it.

    Raises:
        NoMetadataError: there is none.
        DirectoryError: the directory cannot be read.
    """
    with readable(directory):
        if posixpath.basename(posixpath.normpath(directory)) == FOLDER:
            return directory
        folder = f"{directory}/{FOLDER}"
        if files.is_directory(folder):
            return folder
    raise NoMetadataError(
        f"{directory} has no folder {FOLDER}; name the metadata.log.dir of a node in KRaft mode"
    )


def metadata_states(
    files: Files,
    folder: str,
    *,
    first: Moment,
    last: Moment,
    on_skip: OnSkip,
) -> Iterator[MetadataState]:
    """Yield the state at `first`, and after it each one that follows up to `last`.

    `on_skip` gets what is damaged and left out: whole snapshots, and the log from an offset on.

    Raises:
        NoMetadataError: no file goes back to `first`.
        UnknownRecordError: the records are of a release that is not known here.
        DirectoryError: a file cannot be read.
    """
    with readable(folder):
        yield from _History(files, folder, on_skip).states(first, last)


def metadata_state(files: Files, folder: str, at: Moment, *, on_skip: OnSkip) -> MetadataState:
    """The state at a moment; raises as `metadata_states`."""
    return next(metadata_states(files, folder, first=at, last=at, on_skip=on_skip))


class _History:
    """The snapshots and the log of one folder."""

    def __init__(self, files: Files, folder: str, on_skip: OnSkip) -> None:
        self._files = files
        self._on_skip = on_skip
        names = files.list(folder)
        self._snapshots = find_snapshots(files, folder)
        has_log = any(each.endswith(".log") for each in names)
        self._log = open_view(files, folder, PARTITION) if has_log else None

    def states(self, first: Moment, last: Moment) -> Iterator[MetadataState]:
        """Yield the state at `first` and those up to `last`."""
        now: MetadataState | None = None
        is_begun = False
        for each in self._all(first):
            # The first state after `first`: the one before it is the state at that moment.
            if not is_begun and not first.includes(each.next_offset, each.timestamp):
                if now is None:
                    break
                yield now
                is_begun = True
            if not last.includes(each.next_offset, each.timestamp):
                break
            now = each
            if is_begun:
                yield now
        if now is None:
            raise NoMetadataError(f"no snapshot or log goes back to {first}{self._oldest()}")
        if not is_begun:
            yield now

    def _oldest(self) -> str:
        for each in self._snapshots:
            return f"; the oldest snapshot is of offset {each.next_offset}"
        return "" if self._log is None else f"; the log begins at {self._log.reader.start_offset}"

    def _all(self, first: Moment) -> Iterator[MetadataState]:
        position, now = self._base(first)
        if now is not None:
            yield now
        # The beginning of the log is gone, and no snapshot takes the place of it.
        elif self._log is not None and self._log.reader.start_offset > 0:
            return
        replay = MetadataReplay() if now is None else _replay_after(now)
        following = self._snapshots[position + 1 :]
        while True:
            yield from self._batches(replay)
            # Where the log ends or is damaged, a later snapshot leads on; its changes have no
            # moments.
            following = [each for each in following if each.next_offset > replay.next_offset]
            if not following:
                return
            read = self._read(following[0])
            if read is not None:
                now = _of_snapshot(following[0], read)
                replay = _replay_after(now)
                yield now
            del following[0]

    def _base(self, first: Moment) -> tuple[int, MetadataState | None]:
        """The newest whole snapshot before `first`, with its number in `_snapshots`.

        Where there is none, -1 and None if the log has its beginning, and else the oldest one.
        """
        oldest: tuple[int, MetadataState | None] = -1, None
        # From the newest, because the log after it is the shortest to replay.
        for number in reversed(range(len(self._snapshots))):
            read = self._read(self._snapshots[number])
            if read is not None:
                oldest = number, _of_snapshot(self._snapshots[number], read)
                if first.includes(oldest[1].next_offset, oldest[1].timestamp):
                    return oldest
        # Then the log alone leads to any moment.
        has_beginning = self._log is not None and self._log.reader.start_offset == 0
        return (-1, None) if has_beginning else oldest

    def _batches(self, replay: MetadataReplay) -> Iterator[MetadataState]:
        """Yield the states that the log leads to, as far as it is there and whole."""
        log = self._log
        if log is None or replay.next_offset < log.reader.start_offset:
            return
        try:
            end = log.reader.end_offset
            # A snapshot may be of more than the log has.
            for stored in log.batches(Offset(min(replay.next_offset, end)), end):
                # States share what did not change, so one for each batch costs little.
                replay.see(stored.batch)
                yield MetadataState(
                    image=replay.image,
                    next_offset=replay.next_offset,
                    timestamp=replay.timestamp,
                    epoch=replay.epoch,
                    voters=replay.voters,
                    is_jump=False,
                )
            # Raises for damage after the last whole batch, which the loop alone would not see.
            log.finish()
        except DAMAGED as error:
            self._leave_out(error, file=log.reader.folder, first=replay.next_offset, limit=None)

    def _read(self, found: SnapshotFile) -> Snapshot | None:
        try:
            return load_snapshot(self._files, found)
        # Not damage: an older snapshot would show an old state as if it were the present one.
        except UnknownRecordError:
            raise
        except DAMAGED as error:
            self._leave_out(error, file=found.path, first=0, limit=found.next_offset)
            return None

    def _leave_out(self, error: TailraceError, *, file: str, first: int, limit: int | None) -> None:
        position, reason = 0, str(error)
        if isinstance(error, CorruptionError):
            file, position, reason = error.path or file, error.position or 0, error.rule
        next_offset = None if limit is None else Offset(limit)
        self._on_skip(
            Skipped(PARTITION, file, Position(position), Offset(first), next_offset, reason)
        )


def _replay_after(now: MetadataState) -> MetadataReplay:
    replay = MetadataReplay(now.image, next_offset=now.next_offset, epoch=now.epoch)
    # The voters are not in the image, and the records after a snapshot need not repeat them.
    if now.voters is not None:
        replay.quorum = {"VotersRecord": now.voters}
    return replay


def _of_snapshot(found: SnapshotFile, read: Snapshot) -> MetadataState:
    return MetadataState(
        image=read.image,
        next_offset=found.next_offset,
        timestamp=read.log_timestamp,
        epoch=found.epoch,
        voters=read.voters,
        is_jump=True,
    )


Tree = dict[str, Any]
Path = tuple[str, ...]

RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
"""Kinds of resources that have settings, by Kafka's number."""
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms of credentials, by Kafka's number."""


class Change(NamedTuple):
    """A value that differs between two states."""

    path: Path
    """Names from the part of the image down to the value."""
    before: object
    """None: it was not there."""
    after: object
    """None: it is not there."""
    next_offset: int
    """The state of records below this offset was the first one after its last change; of an entry
    that is new or gone, the first one with it or without it."""
    timestamp: int
    """Time of that change, in milliseconds since 1970."""
    is_jump: bool
    """Whether it is the end of a gap in the log, somewhere in which the change was made."""


class _Part(NamedTuple):
    entries: Callable[[MetadataImage], Mapping[Any, Any]]
    title: Callable[[Any, Any], str]
    """The name of an entry from its key and its value."""
    plain: Callable[[Any], object]


def image_tree(image: MetadataImage) -> Tree:
    """All of an image: part, name of the entry, its fields."""
    return {
        name: {part.title(key, each): part.plain(each) for key, each in part.entries(image).items()}
        for name, part in _PARTS.items()
    }


def metadata_changes(states: Iterable[MetadataState]) -> list[Change]:
    """The values that differ between the first and the last state, each with its last change."""
    moments: dict[Path, MetadataState] = {}
    first: MetadataState | None = None
    last: MetadataState | None = None
    for each in states:
        if last is not None:
            moments |= dict.fromkeys((path for path, _, _ in _between(last, each)), each)
        first, last = first or each, each
    assert first is not None, "there is a first state"
    assert last is not None, "and a last one"
    return [
        Change(path, before, after, at.next_offset, at.timestamp, at.is_jump)
        for path, before, after in _between(first, last)
        for at in [_moment(moments, path)]
    ]


def _moment(moments: Mapping[Path, MetadataState], path: Path) -> MetadataState:
    """The last change of a value, or else of what is in it or around it."""
    if path in moments:
        return moments[path]
    # An entry that came or went as a whole has its moment at its own path, and its fields have
    # none.
    near = (at for each, at in moments.items() if each[: len(path)] == path[: len(each)])
    return max(near, key=lambda at: at.next_offset)


def _between(before: MetadataState, after: MetadataState) -> Iterator[tuple[Path, object, object]]:
    for name, part in _PARTS.items():
        old, new = part.entries(before.image), part.entries(after.image)
        # States share the parts that did not change, so most comparisons end here.
        if old is not new:
            gone = {key: each for key, each in old.items() if new.get(key) is not each}
            come = {key: each for key, each in new.items() if old.get(key) is not each}
            yield from _differences(_named(part, gone), _named(part, come), (name,))


def _named(part: _Part, entries: Mapping[Any, Any]) -> Tree:
    return {part.title(key, each): part.plain(each) for key, each in entries.items()}


def _differences(before: Tree, after: Tree, path: Path) -> Iterator[tuple[Path, object, object]]:
    for name in [*before, *(each for each in after if each not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, (*path, name))
        elif old != new:
            yield (*path, name), old, new


def _key(key: object, _: object) -> str:
    return str(key)


def _topic(topic: TopicState) -> Tree:
    # They are in the path already.
    left_out = {"topic_id", "partition_id"}
    parts = {
        str(number): {
            name: value for name, value in record_fields(each).items() if name not in left_out
        }
        for number, each in sorted(topic.partitions.items())
    }
    return {"topic_id": format_topic_id(topic.topic_id), "partitions": parts}


def _resource(key: ConfigResource, _: object) -> str:
    kind = RESOURCES.get(key.type, f"resource type {key.type}")
    return f"{kind} {key.name or '<default>'}"


def _settings(settings: Mapping[str, str]) -> Tree:
    return {name: shown_setting(name, value) for name, value in settings.items()}


def _entity(key: QuotaEntity, _: object) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in key.parts)


def _user(_: object, record: UserScramCredentialRecord) -> str:
    mechanism = MECHANISMS.get(record.mechanism, f"mechanism {record.mechanism}")
    return f"{record.name} {mechanism}"


_PARTS: Final[dict[str, _Part]] = {
    "features": _Part(lambda image: image.features, _key, int),
    "brokers": _Part(lambda image: image.brokers, _key, record_fields),
    "controllers": _Part(lambda image: image.controllers, _key, record_fields),
    "topics": _Part(lambda image: image.topics, lambda _, each: each.name, _topic),
    "settings": _Part(lambda image: image.configs, _resource, _settings),
    "quotas": _Part(lambda image: image.quotas, _entity, dict),
    "producer_ids": _Part(
        lambda image: {} if image.next_producer_id is None else {"next": image.next_producer_id},
        _key,
        int,
    ),
    "acls": _Part(lambda image: image.acls, lambda key, _: format_topic_id(key), record_fields),
    "users": _Part(lambda image: image.scram, _user, credential_fields),
    "tokens": _Part(lambda image: image.tokens, _key, record_fields),
}
