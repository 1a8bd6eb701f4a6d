"""The small text files of a log directory.

    recovery-point-offset-checkpoint      leader-epoch-checkpoint      partition.metadata
    0                  <- version         0                            version: 0
    2                  <- entries         1                            topic_id: 6dT2…
    flights 0 84194                       0 0   <- epoch, start
    flights 1 84194

Each is written under a second name, synced, renamed over the first, and the directory synced:
after a crash there is the old file or the new one, never a mixture.
"""

import base64
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError
from tailrace.model import TopicPartition
from tailrace.runtime.files import Files, read_exactly

_NUMBER = re.compile(r"[0-9]{1,19}")
_LINE = re.compile(r"[^\n]+")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")

TEXT_BYTES_MAX = 64 * 1024 * 1024
"""A checkpoint of a million partitions; anything larger is not a checkpoint."""


def write_atomically(files: Files, directory: str, name: str, *, text: str) -> None:
    """Replace the file `name` in `directory`; on the device when this returns.

    Raises:
        OSError: the old file is still whole, or the new one is there and may not outlast a crash.
    """
    path = f"{directory}/{name}"
    temporary = f"{path}.tmp"
    write_whole(files, temporary, text.encode(), is_synced=True)
    # After the sync: a rename that reaches the device before the bytes would leave an empty file.
    files.rename(temporary, path)
    # Without it a crash may bring the old file back, after the caller has relied on the new one.
    files.sync_directory(directory)


def write_whole(files: Files, path: str, data: bytes, *, is_synced: bool) -> None:
    """Write or replace a file; with `is_synced`, its bytes are on the device on return.

    Raises:
        OSError: the device is full or failing; the file may be torn, as after a crash.
    """
    with closing(files.open(path, create=True)) as file:
        file.resize(0)
        file.write(0, data)
        if is_synced:
            file.sync()


def read_text(files: Files, path: str) -> str:
    """The whole of a small text file.

    Raises:
        CorruptionError: not UTF-8, or larger than any file of its kind.
        OSError: it cannot be read.
    """
    file = files.open(path, read_only=True)
    try:
        size = file.size()
        # A damaged size, or another file under this name, must not decide how much memory is taken.
        if size > TEXT_BYTES_MAX:
            raise CorruptionError(f"{size} bytes are too many for a text file", path=path)
        return read_exactly(file, path, position=0, size=size).decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(
            f"not UTF-8: {error.reason}", path=path, position=error.start
        ) from error
    finally:
        file.close()


def read_offset_checkpoint(files: Files, path: str) -> dict[TopicPartition, int]:
    """Offset by partition; empty when the file is missing or has no bytes.

    Raises:
        CorruptionError: another version, a wrong count or a malformed line.
        OSError: it cannot be read.
    """
    entries = {}
    for line, words in _read_entries(files, path):
        if len(words) != 3:
            raise CorruptionError(f"line {line} is not 'topic partition offset'", path=path)
        partition, offset = _numbers(words[1:], path, line)
        entries[TopicPartition(words[0], partition)] = offset
    return entries


def write_offset_checkpoint(
    files: Files, directory: str, name: str, *, offsets: Mapping[TopicPartition, int]
) -> None:
    lines = [f"{topic} {number} {offset}" for (topic, number), offset in sorted(offsets.items())]
    write_atomically(files, directory, name, text=_with_header(lines))


def read_epoch_checkpoint(files: Files, path: str) -> list[tuple[int, int]]:
    """Pairs of leader epoch and its first offset, both rising.

    Raises:
        CorruptionError: malformed, or not rising.
        OSError: it cannot be read.
    """
    entries: list[tuple[int, int]] = []
    for line, words in _read_entries(files, path):
        if len(words) != 2:
            raise CorruptionError(f"line {line} is not 'epoch offset'", path=path)
        epoch, offset = _numbers(words, path, line)
        if entries and (epoch <= entries[-1][0] or offset < entries[-1][1]):
            raise CorruptionError(f"line {line}: epoch and offset do not rise", path=path)
        entries.append((epoch, offset))
    return entries


def write_epoch_checkpoint(
    files: Files, directory: str, name: str, *, entries: Sequence[tuple[int, int]]
) -> None:
    write_atomically(files, directory, name, text=_with_header([f"{e} {o}" for e, o in entries]))


def format_topic_id(topic_id: uuid.UUID) -> str:
    """22 characters of URL-safe base64, as Kafka prints ids."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> uuid.UUID:
    """The id that a text encodes.

    Raises:
        ValueError: not 16 bytes of base64.
    """
    if not _TOPIC_ID.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an id of 22 base64 characters")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def read_partition_metadata(files: Files, path: str) -> uuid.UUID | None:
    """The topic id of a partition folder; None when the file is missing.

    Raises:
        CorruptionError: malformed, or the id is zero.
        OSError: it cannot be read.
    """
    if not files.exists(path):
        return None
    lines = [line.partition(":") for line in read_text(files, path).splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    try:
        version, topic_id = int(fields["version"]), parse_topic_id(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptionError(f"not a partition.metadata file: {error}", path=path) from error
    # Kafka refuses the zero id too: it means that a topic has none.
    if version < 0 or topic_id.int == 0:
        raise CorruptionError("the version is negative or the topic id zero", path=path)
    return topic_id


def write_partition_metadata(
    files: Files, directory: str, name: str, *, topic_id: uuid.UUID
) -> None:
    """Write the topic id, without a newline at the end, as Kafka does."""
    write_atomically(
        files, directory, name, text=f"version: 0\ntopic_id: {format_topic_id(topic_id)}"
    )


def _with_header(lines: list[str]) -> str:
    return "\n".join(["0", str(len(lines)), *lines]) + "\n"


def _numbers(words: Sequence[str], path: str, line: int) -> tuple[int, int]:
    for word in words:
        # `int` would take signs, blanks, underscores and other digits, which Java does not.
        if not _NUMBER.fullmatch(word) or int(word) > INT64_MAX:
            raise CorruptionError(
                f"line {line}: {word[:40]!r} is not a number from 0 to {INT64_MAX}", path=path
            )
    first, second = (int(word) for word in words)
    return first, second


def _read_entries(files: Files, path: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of each entry, after a check of the header.

    Entries come one at a time, so that a file that is no checkpoint takes little more memory than
    its size.
    """
    text = read_text(files, path) if files.exists(path) else ""
    if not text:
        return
    version, declared, rest = [*text.split("\n", 2), "", ""][:3]
    if version.strip() != "0":
        raise CorruptionError(
            f"unknown version {version.strip()[:20]!r}; only version 0 is known", path=path
        )
    # Kafka steps over blank lines.
    count = sum(not line[0].isspace() for line in _LINE.finditer(rest))
    if declared.strip() != str(count):
        shown = declared.strip()[:20] or "nothing"
        raise CorruptionError(f"{count} entries, and the header declares {shown!r}", path=path)
    number, end = 3, 0
    for line in _LINE.finditer(rest):
        number += rest.count("\n", end, line.start())
        end = line.start()
        if not line[0].isspace():
            yield number, line[0].split()
