"""Save and load the cluster image: `tailrace-cluster.json` in the first log directory.

    {"version": 1, "next_producer_id": 1000,
     "deleted_topics": ["Xk…"],
     "topics": [{"name": "planes", "id": "b1…", "partitions": [0],
                 "configs": {"cleanup.policy": "compact"}}],
     "groups": [{"name": "g", "configs": {"consumer.session.timeout.ms": "60000"}}]}

Apache Kafka ignores unknown files in a log directory. The file is replaced atomically, and is on
the device before a change is answered.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tailrace.cluster.image import ClusterImage, Topic
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import UNEXPECTED_JSON, CorruptionError, DirectoryError
from tailrace.model import METADATA_TOPIC, TopicPartition
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_text,
    write_atomically,
)
from tailrace.storage.directories import unusable
from tailrace.storage.names import parse_partition_directory_name

FILE = "tailrace-cluster.json"
VERSION = 1


class LocalStore:
    """The file with the image of a cluster of one node."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def load(self) -> ClusterImage:
        """The last saved image; an empty one if there is no file.

        Kafka's metadata log, which an earlier release adopted as a topic, is left out.

        Raises:
            DirectoryError: the file cannot be read or understood.
        """
        path = f"{self._directory}/{FILE}"
        if not self._files.exists(path):
            return ClusterImage()
        try:
            content = json.loads(read_text(self._files, path))
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
            return ClusterImage(
                topics=MappingProxyType(by_name),
                next_producer_id=_whole(content["next_producer_id"], INT64_MAX),
                group_configs=MappingProxyType(
                    {each["name"]: _read_configs(each) for each in content.get("groups", ())}
                ),
                deleted_topic_ids=frozenset(map(parse_topic_id, content["deleted_topics"])),
            )
        except DirectoryError:
            raise
        except OSError as error:
            raise unusable(self._directory, error) from error
        except (CorruptionError, *UNEXPECTED_JSON) as error:
            raise DirectoryError(
                f"{path} cannot be understood ({error}); restore it from a backup, or remove it to "
                "have the topics read from their folders, with default settings"
            ) from error

    def save(self, image: ClusterImage) -> None:
        """Replace the file; on the device when this returns.

        Raises:
            OSError: the old file is still whole.
        """
        content = {
            "version": VERSION,
            "next_producer_id": image.next_producer_id,
            "deleted_topics": sorted(map(format_topic_id, image.deleted_topic_ids)),
            "topics": [
                {
                    "name": topic.name,
                    "id": format_topic_id(topic.topic_id),
                    "partitions": list(topic.partitions),
                    "configs": dict(topic.configs),
                }
                for topic in image.topics.values()
            ],
            "groups": [
                {"name": name, "configs": dict(configs)}
                for name, configs in image.group_configs.items()
            ],
        }
        write_atomically(
            self._files, self._directory, FILE, text=json.dumps(content, indent=1) + "\n"
        )


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
