"""Where the image is kept on one node: `tailrace-cluster.json` in the log directory.

    {"version": 1, "next_producer_id": 1000,
     "topics": [{"name": "planes", "id": "b1…", "partitions": [0],
                 "configs": {"cleanup.policy": "compact"}}]}

Apache Kafka ignores files that it does not know in a log directory, so this one does no harm
there. It is replaced as a whole, on the device before the change is answered.
"""

import json
from types import MappingProxyType

from tailrace.cluster.image import ClusterImage, Topic
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.runtime.files import Files
from tailrace.storage.checkpoints import (
    format_topic_id,
    parse_topic_id,
    read_text,
    write_atomically,
)

FILE = "tailrace-cluster.json"
VERSION = 1


class LocalStore:
    """The image of a cluster of one node, beside its logs."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def load(self) -> ClusterImage:
        """The image as it was last saved; an empty one if it never was.

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
            topics = [
                Topic(
                    name=str(topic["name"]),
                    topic_id=parse_topic_id(topic["id"]),
                    partitions=tuple(int(number) for number in topic["partitions"]),
                    configs=MappingProxyType(dict(topic["configs"])),
                )
                for topic in content["topics"]
            ]
            return ClusterImage(
                topics=MappingProxyType({topic.name: topic for topic in topics}),
                next_producer_id=int(content["next_producer_id"]),
            )
        except (CorruptionError, ValueError, KeyError, TypeError, RecursionError) as error:
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
            "topics": [
                {
                    "name": topic.name,
                    "id": format_topic_id(topic.topic_id),
                    "partitions": list(topic.partitions),
                    "configs": dict(topic.configs),
                }
                for topic in image.topics.values()
            ],
        }
        write_atomically(
            self._files, self._directory, FILE, text=json.dumps(content, indent=1) + "\n"
        )
