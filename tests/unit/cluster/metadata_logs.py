"""A metadata log on doubles, and the changes that tests make to it."""

import random
from pathlib import Path

from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.log import (
    MetadataFolder,
    MetadataLog,
    MetadataLogConfig,
    open_metadata_log,
)
from tailrace.cluster.metadata.snapshot_records import RecordToWrite
from tailrace.protocol.metadata_records.config import ConfigRecord
from tailrace.protocol.metadata_records.feature_level import FeatureLevelRecord
from tailrace.storage.removals import Removals
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import SetClock

DIRECTORY = "data"
FOLDER = f"{DIRECTORY}/__cluster_metadata-0"
GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
NODE = 1
LEVEL = RecordToWrite(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)


class Node:
    """One node after another on the same disk."""

    def __init__(self, files: MemoryFiles | None = None, **config: int) -> None:
        self.files = files or MemoryFiles()
        self.clock = SetClock()
        self.config = MetadataLogConfig(**config)
        self.told: list[str] = []
        self.removals = Removals(self.files)
        if not self.files.exists(DIRECTORY):
            self.files.make_directory(DIRECTORY)

    def open(self) -> MetadataLog:
        """The log, with this node as leader."""
        folder = MetadataFolder(self.files, self.clock, random.Random(0), self.removals, DIRECTORY)
        log = open_metadata_log(folder, self.config, tell=self.told.append)
        log.lead(NODE)
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
