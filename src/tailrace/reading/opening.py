"""`open_log` and `list_partitions`: from a path to the logs that are there."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.errors import ConfigError, DirectoryError
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.reading.directory import DataDirectory, find_partitions
from tailrace.reading.log import Isolation, Log, OnDamage
from tailrace.runtime.extras import check_extra
from tailrace.runtime.files import DiskFiles, Files

# Most topics or partitions that an error names.
_NAMED_MAX = 10


class NamedDirectory(NamedTuple):
    """A directory as the caller named it, and its file system."""

    files: Files
    path: str
    given: str
    """The path as the caller wrote it."""


def open_directory(given: str) -> NamedDirectory:
    """The directory that a path or a URI names; nothing is read yet.

    Raises:
        ConfigError: there is no file system for the URI.
        MissingExtraError: PyArrow is not installed, which opens URIs.
        DirectoryError: its file system cannot be opened.
    """
    if "://" not in given and not given.startswith("file:"):
        # Workers may run in another working directory than the driver.
        return NamedDirectory(DiskFiles(), os.path.abspath(given), given)
    check_extra("arrow", f"opening {given}", packages=("pyarrow",))
    from tailrace.runtime.arrow_files import open_uri

    try:
        files, path = open_uri(given)
    except ValueError as error:
        raise ConfigError([f"path: {given} cannot be opened: {error}"]) from error
    except (OSError, ImportError) as error:
        raise DirectoryError(f"{given} cannot be opened: {error}") from error
    return NamedDirectory(files, path.rstrip("/") or "/", given)


def open_log(
    directory: str | os.PathLike[str],
    topic: str | None = None,
    partition: int | None = None,
    *,
    isolation: Isolation = "read_uncommitted",
    on_damage: OnDamage = "raise",
) -> Log:
    """One partition's log, opened for reading; nothing in the directory is changed or locked.

    Args:
        directory: a directory that `log.dirs` of a broker names, Tailrace's or Apache Kafka's, or a
            copy of one; or the folder of one partition in it (`flights-0`). A path, or a URI that
            PyArrow's file systems open.
        topic: may be left out where the directory has only one partition.
        partition: may be left out where the topic has only one.
        isolation: `read_committed` leaves out records of aborted transactions, and ends before the
            first one that is open.
        on_damage: `skip` leaves out damaged bytes and notes them in `Log.skipped`.

    Raises:
        CorruptionError: a file is damaged without which the end of the log is not known.
        DirectoryError: there is no such topic or partition, with those that are there; or the
            directory cannot be read.
        ConfigError: `isolation` or `on_damage` is another word, or the URI cannot be opened.
        MissingExtraError: a URI is given, and the extra `arrow` is not installed.
        TypeError: an argument is of another type.

    Example:
        >>> with open_log("/var/lib/kafka/data", "flights", 0) as log:
        ...     for record in log.records(limit=100):
        ...         print(record.offset, record.value)
    """
    _check_types(topic, partition)
    found = _find(directory)
    chosen = _choose(found.directory, topic, partition)
    log = Log(
        found.files, found.directory.partitions[chosen], chosen,
        isolation=isolation, on_damage=on_damage,
    )  # fmt: skip
    # At once, so that a wrong path or a damaged end is an error of this call.
    log.refresh()
    return log


def list_partitions(directory: str | os.PathLike[str]) -> tuple[TopicPartition, ...]:
    """The partitions that a directory has, in the order of their topics and numbers.

    Internal topics are among them, as is the cluster's metadata log.

    Raises:
        DirectoryError: it cannot be read, or is no directory of a broker.
        ConfigError: the URI cannot be opened.
        MissingExtraError: a URI is given, and the extra `arrow` is not installed.

    Example:
        >>> for topic, partition in list_partitions("/var/lib/kafka/data"):
        ...     print(topic, partition)
    """
    return tuple(_find(directory).directory.partitions)


class _Found(NamedTuple):
    files: Files
    directory: DataDirectory


def _find(directory: str | os.PathLike[str]) -> _Found:
    given = os.fspath(directory)
    if not isinstance(given, str):
        raise TypeError(f"directory is {given!r}; it must be a str or a pathlib.Path")
    named = open_directory(given)
    return _Found(named.files, find_partitions(named.files, named.path))


def _check_types(topic: object, partition: object) -> None:
    if not isinstance(topic, str | None):
        raise TypeError(f"topic is {topic!r}; it must be the name of a topic, as a str")
    if isinstance(partition, bool) or not isinstance(partition, int | None):
        raise TypeError(f"partition is {partition!r}; it must be a number, as an int")


def _choose(directory: DataDirectory, topic: str | None, partition: int | None) -> TopicPartition:
    """The one partition that topic and number name; the metadata log only by its name."""
    # Otherwise a directory with one topic of its owner would have two.
    there = [each for each in directory.partitions if each.topic != METADATA_TOPIC or topic]
    named = [each for each in there if topic in (None, each.topic)]
    if not named:
        topics = sorted({each.topic for each in there} - {METADATA_TOPIC})
        raise DirectoryError(
            f"{directory.path} has no topic {topic!r}; its topics: {_listed(topics)}"
        )
    chosen = [each for each in named if partition in (None, each.partition)]
    if len(chosen) == 1:
        return chosen[0]
    wanted = "" if topic is None else f" of {topic}"
    if not chosen:
        wanted = f" has no partition {partition}{wanted}"
    else:
        wanted = f" has {len(chosen)} partitions{wanted}: name one"
    raise DirectoryError(f"{directory.path}{wanted}; there are: {_listed(map(str, named))}")


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _NAMED_MAX} more" if len(every) > _NAMED_MAX else ""
    return ", ".join(every[:_NAMED_MAX]) + more or "none"
