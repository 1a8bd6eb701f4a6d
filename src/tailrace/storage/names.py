"""Names of files and folders in a log directory, as Kafka writes them.

    flights-3/                          a partition: topic, the last dash, number
        00000000000000000170.log        a segment: base offset, 20 digits
        00000000000000000170.index
        00000000000000000170.timeindex
        00000000000000000170.txnindex   aborted transactions, if there are any
        00000000000000000170.snapshot   producers just before that offset
        set-aside-00000000000000000170-8391.bytes
                                        bytes that recovery cut from that log at byte 8391
    flights-3.5f0c….-delete/            a deleted partition, until its files are removed
    flights-3.5f0c….-future/            a copy of a partition that moves here
    __cluster_metadata-0/               the metadata log, which is no partition

A `set-aside` name does not begin with a number: when Kafka completes a compaction, it deletes every
file whose name begins with an offset of the range.

Topic names may have dots and dashes, so a folder name is split at its last dash.
"""

import re

from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.model import METADATA_TOPIC, TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (
    LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
)  # fmt: skip
"""The files of a segment, the log first."""
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"
"""Kafka's name for a partition folder that belongs to no topic of the cluster."""
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
KEPT_SUFFIX = ".bytes"
"""Suffix of bytes that were cut from a log and are kept; see `set_aside`."""

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

NAME_BYTES_MAX = 255
"""Longest name that Linux file systems allow, in bytes."""

_SEGMENT = re.compile(r"([0-9]{20})(\.[a-z]+)")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_METADATA = re.compile(rf"{METADATA_TOPIC}-[0-9]+(\.[^.\s]+{DELETE_DIRECTORY_SUFFIX})?")
_DELETED_PARTITION = re.compile(r"[a-zA-Z0-9._-]*-[0-9]+\.[0-9a-f]{32}-delete")
_FUTURE_PARTITION = re.compile(r"([a-zA-Z0-9._-]+-[0-9]+)\.[0-9a-f]{32}-future")
_SUFFIXED_FOLDER = re.compile(r"\S+-\S+\.\S+-(?:delete|future|stray)", re.ASCII)
_PARTITION_NUMBER = re.compile(r"[+]?\d+")
_FOLDER_SUFFIXES = (DELETE_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX)
_REMOTE_INDEX_CACHE = "remote-log-index-cache"
_SET_ASIDE = re.compile(r"set-aside-([0-9]{20})-(0|[1-9][0-9]{0,18})(-[1-9][0-9]*)?\.bytes")
_QUARANTINE = re.compile(r"quarantine-[0-9]{20}-[0-9]+(-[0-9]+)?\.bytes")


def segment_file_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000170.log` for 170 and `.log`."""
    return f"{base_offset:020d}{suffix}"


def parse_segment_file_name(name: str) -> tuple[int, str] | None:
    """Base offset and suffix, or None for a file that is not part of a segment."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), match[2]) if match and int(match[1]) <= INT64_MAX else None


def set_aside_file_name(base_offset: int, position: int) -> str:
    """`set-aside-00000000000000000170-8391.bytes`: bytes of a log file from a position on."""
    return f"set-aside-{base_offset:020d}-{position}{KEPT_SUFFIX}"


def parse_set_aside_file_name(name: str) -> tuple[int, int] | None:
    """Base offset and position of bytes set aside by recovery, or None for any other file."""
    match = _SET_ASIDE.fullmatch(name)
    return (int(match[1]), int(match[2])) if match and int(match[1]) <= INT64_MAX else None


def is_removed_at_start(name: str) -> bool:
    """Whether a start removes this file of a partition's folder.

    True for a `.deleted` file of a segment and for a `.tmp` file that Tailrace or Kafka writes.
    Other files with these suffixes stay.
    """
    stem, dot, last = name.rpartition(".")
    match dot + last:
        case ".deleted":
            return parse_segment_file_name(stem) is not None
        case ".tmp":
            return (
                stem in {LEADER_EPOCHS, PARTITION_METADATA}
                or parse_segment_file_name(stem) is not None
                or parse_set_aside_file_name(stem) is not None
                or _QUARANTINE.fullmatch(stem) is not None
            )
        case _:
            return False


def partition_directory_name(partition: TopicPartition) -> str:
    return str(partition)


def parse_partition_directory_name(name: str) -> TopicPartition | None:
    """The partition of a folder in service, or None for any other folder."""
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) > INT32_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def stops_kafka(name: str) -> bool:
    """Whether Kafka does not start because a folder of this name is in one of its log.dirs.

    It takes each folder there for a log, and this is how it finds the partition
    (`LocalLog.parseTopicPartitionName`).
    """
    if name == _REMOTE_INDEX_CACHE:
        return False
    if name.endswith(_FOLDER_SUFFIXES):
        if _SUFFIXED_FOLDER.fullmatch(name) is None:
            return True
        name = name.rpartition(".")[0]
    topic, _, number = name.rpartition("-")
    # Java takes a plus sign, leading zeros, and the digits of other scripts in the first plane.
    is_number = _PARTITION_NUMBER.fullmatch(number) is not None and max(number) < "\U00010000"
    return not topic or not is_number or int(number) > INT32_MAX


def is_known_directory_name(name: str) -> bool:
    """Whether a folder of log.dirs is a partition or the metadata log, in service or not."""
    return (
        parse_partition_directory_name(name) is not None
        or is_metadata_directory_name(name)
        or name == _REMOTE_INDEX_CACHE
        or (name.endswith(_FOLDER_SUFFIXES) and not stops_kafka(name))
    )


def is_metadata_directory_name(name: str) -> bool:
    """Whether a folder is the metadata log, also with a `-delete` suffix."""
    return _METADATA.fullmatch(name) is not None


def delete_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """The folder's name while it waits to be deleted; the topic is cut to fit 255 bytes."""
    tail = f"-{partition.partition}.{unique_id}{DELETE_DIRECTORY_SUFFIX}"
    return partition.topic[: NAME_BYTES_MAX - len(tail)] + tail


def future_directory_name(partition: TopicPartition, unique_id: str) -> str:
    """The folder's name while a copy of a moving partition catches up.

    The topic is not cut, because the name is parsed again: the caller checks `NAME_BYTES_MAX`.
    """
    return f"{partition}.{unique_id}{FUTURE_DIRECTORY_SUFFIX}"


def parse_future_directory_name(name: str) -> TopicPartition | None:
    """The partition of a `-future` folder, or None for any other folder."""
    match = _FUTURE_PARTITION.fullmatch(name)
    return None if match is None else parse_partition_directory_name(match[1])


def is_delete_directory_name(name: str) -> bool:
    """Whether a folder is a deleted partition in Kafka's naming: topic, number, 32 hex digits."""
    return _DELETED_PARTITION.fullmatch(name) is not None
