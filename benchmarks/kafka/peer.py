"""Apache Kafka as it is run in earnest: the Java options of its own start scripts, one node.

Its broker and its controller are one process, as ours is, so what it costs is the whole of it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from compat.artifacts import KAFKA, class_path
from compat.kafka import Kafka
from tailrace.spark.java import find_java

JVM = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
"""`KAFKA_HEAP_OPTS` and `KAFKA_JVM_PERFORMANCE_OPTS` of `kafka-server-start.sh`."""

DEFAULTS = MappingProxyType(
    {"log.cleaner.dedupe.buffer.size": str(128 * 1024**2), "log.cleaner.backoff.ms": "15000"}
)
"""Kafka's own, which the harness of the proofs makes smaller."""

PEER = f"Kafka {KAFKA.version}"
"""Its name in figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The Java and the class path that start Kafka and its tools."""

    java: Path
    class_path: str

    @classmethod
    def find(cls) -> Self:
        """Fetched if it is not in the cache.

        Raises:
            FatalError: no Java, or no Maven to fetch it with; one line says what to install.
        """
        java = find_java(os.environ).home / "bin" / "java"
        return cls(java=java, class_path=class_path(KAFKA, os.environ))

    def kafka(
        self, directory: Path, *, settings: Mapping[str, str] = MappingProxyType({})
    ) -> Kafka:
        """A Kafka on a directory, new or written before."""
        return Kafka(
            self.java, self.class_path, directory, settings={**DEFAULTS, **settings}, jvm=JVM
        )
