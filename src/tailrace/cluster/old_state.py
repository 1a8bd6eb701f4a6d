"""Read `tailrace-cluster.json`, in which releases before the metadata log kept the cluster's state.

    {"version": 1, "next_producer_id": 1000,
     "deleted_topics": ["Xk…"],
     "topics": [{"name": "planes", "id": "b1…", "partitions": [0],
                 "configs": {"cleanup.policy": "compact"}}],
     "groups": [{"name": "g", "configs": {"consumer.session.timeout.ms": "60000"}}]}

The first start of this release takes it over into the metadata log, and then gives the file another
name. Nothing writes it any more.
"""

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tailrace.cluster.image import Topic
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import UNEXPECTED_JSON, CorruptionError, DirectoryError
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import parse_topic_id, read_text
from tailrace.storage.directories import unusable
from tailrace.storage.names import parse_partition_directory_name
from tailrace.values import dataclass

FILE: Final = "tailrace-cluster.json"
TAKEN_OVER: Final = f"{FILE}.taken-over"
"""The name of the file when the metadata log has its content."""
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OldState:
    """The content of the file."""

    topics: Mapping[str, Topic]
    """By name, without Kafka's metadata log, which an early release adopted as a topic."""
    next_producer_id: int
    """Ids below it may be in use."""
    group_configs: Mapping[str, Mapping[str, str]]
    """The own settings of consumer groups that have some, as text, by group id."""
    deleted_topic_ids: frozenset[uuid.UUID]
    """Ids of deleted topics whose folders may still exist, so that these are not adopted."""


def read_old_state(files: Files, directory: str) -> OldState | None:
    """The state in the file of a directory; None if there is none.

    Raises:
        DirectoryError: the file cannot be read or understood.
    """
    path = f"{directory}/{FILE}"
    if not files.exists(path):
        return None
    try:
        content = json.loads(read_text(files, path))
        if content["version"] != VERSION:
            raise DirectoryError(
                f"{path} has version {content['version']}, this release reads {VERSION}; "
                "open it with the release that wrote it"
            )
        topics = [_read_topic(topic) for topic in content["topics"]]
        by_name = {topic.name: topic for topic in topics}
        if len(by_name) < len(topics):
            raise ValueError("two topics have the same name")
        by_name.pop(METADATA_TOPIC, None)
        return OldState(
            topics=by_name,
            next_producer_id=_whole(content["next_producer_id"], INT64_MAX),
            group_configs={each["name"]: _read_configs(each) for each in content.get("groups", ())},
            deleted_topic_ids=frozenset(map(parse_topic_id, content["deleted_topics"])),
        )
    except DirectoryError:
        raise
    except OSError as error:
        raise unusable(directory, error) from error
    except (CorruptionError, *UNEXPECTED_JSON) as error:
        raise DirectoryError(
            f"{path} cannot be understood ({error}); restore it from a backup, or remove it to "
            "have the topics read from their folders, with default settings"
        ) from error


def retire_old_state(files: Files, directory: str) -> None:
    """Give the file its other name, if there is one; on the device on return.

    Raises:
        OSError: the device refuses.
    """
    if files.exists(f"{directory}/{FILE}"):
        files.rename(f"{directory}/{FILE}", f"{directory}/{TAKEN_OVER}")
        files.sync_directory(directory)


def _read_topic(content: dict[str, Any]) -> Topic:
    name = content["name"]
    partitions = tuple(_whole(number, INT32_MAX) for number in content["partitions"])
    # The name becomes part of a path, so a folder of this name must be this topic's.
    if parse_partition_directory_name(f"{name}-0") != TopicPartition(name, 0):
        raise ValueError(f"{str(name)[:40]!r} is no topic name")
    if len(set(partitions)) < len(partitions):
        raise ValueError(f"topic {name} has a partition twice")
    return Topic(
        name=name,
        topic_id=parse_topic_id(content["id"]),
        partitions=partitions,
        configs=_read_configs(content),
    )


def _read_configs(content: dict[str, Any]) -> Mapping[str, str]:
    """The settings of a topic or a group."""
    name, configs = content["name"], content["configs"]
    if not all(isinstance(word, str) for pair in configs.items() for word in (name, *pair)):
        raise ValueError(f"{str(name)[:40]} or one of its settings is no text")
    return MappingProxyType(configs)


def _whole(number: object, limit: int) -> int:
    if type(number) is not int or not 0 <= number <= limit:
        raise ValueError(f"{str(number)[:40]} is not a whole number from 0 to {limit}")
    return number
