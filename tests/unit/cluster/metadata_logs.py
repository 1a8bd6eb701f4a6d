"""A metadata log on doubles, and the changes that tests make to it."""

import random
from pathlib import Path
from uuid import UUID

from tailrace.cluster import records
from tailrace.cluster.bootstrap import new_image
from tailrace.cluster.image import Topic
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.folder import MetadataFolder, MetadataLogConfig
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.log import MetadataLog, open_metadata_log
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.protocol.metadata_records import ConfigRecord, FeatureLevelRecord
from tailrace.runtime.files import Files
from tailrace.storage.folder import Removals
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import SetClock

DIRECTORY = "data"
FOLDER = f"{DIRECTORY}/__cluster_metadata-0"
GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
NODE = 1
LEVEL = RecordToWrite(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)


class Node:
    """One node after another on the same disk."""

    def __init__(
        self, files: MemoryFiles | None = None, directory: str = DIRECTORY, /, **config: int
    ) -> None:
        self.files = files or MemoryFiles()
        self.directory = directory
        self.clock = SetClock()
        self.config = MetadataLogConfig(**config)
        self.told: list[str] = []
        self.removals = Removals(self.files)
        if not self.files.exists(directory):
            self.files.make_directory(directory)

    def open(self) -> MetadataLog:
        """The log, with this node as leader."""
        folder = MetadataFolder(
            self.files, self.clock, random.Random(0), self.removals, self.directory
        )
        log = open_metadata_log(folder, self.config, node_id=NODE, report=self.told.append)
        log.lead()
        return log

    def names(self, suffix: str) -> list[str]:
        """The files of the folder that end so."""
        return [each for each in self.files.list(FOLDER) if each.endswith(suffix)]

    def damage(self, name: str, position: int = -1) -> None:
        """Flip a bit of a file."""
        path = f"{FOLDER}/{name}"
        file = self.files.open(path)
        at = position if position >= 0 else file.size() + position
        file.write(at, bytes([file.read(at, 1)[0] ^ 1]))
        file.sync()
        file.close()


def setting(value: int, topic: str = "t") -> RecordToWrite:
    """A setting of a topic."""
    record = ConfigRecord(
        resource_type=2, resource_name=topic, name="retention.ms", value=str(value)
    )
    return RecordToWrite(record, 0)


def value_in(image: MetadataImage, topic: str = "t") -> int | None:
    """The value that `setting` gave it last."""
    for resource, settings in image.configs.items():
        if resource.name == topic:
            return int(settings["retention.ms"])
    return None


def save_topics(files: Files, *topics: Topic, directory: str = DIRECTORY) -> None:
    """Write a metadata log with these topics, as a broker has left it."""
    folder = MetadataFolder(files, SetClock(), random.Random(0), Removals(files), directory)
    log = open_metadata_log(folder, MetadataLogConfig(), node_id=NODE, report=lambda _: None)
    log.lead()
    node = records.Node(node_id=NODE, directories={directory: UUID(int=500)})
    log.append(list(snapshot_records(new_image())))
    for topic in topics:
        log.append(list(records.topic_records(topic, log.image, node)))
    log.close()
