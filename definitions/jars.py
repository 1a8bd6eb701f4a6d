"""The definitions in the jars of one version of Apache Kafka, which Maven fetches."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from compat.artifacts import Release, class_path
from definitions.model import DefinitionError

_GROUP = "org.apache.kafka"


class Jars:
    """The jars of one version."""

    def __init__(self, version: str, environment: Mapping[str, str]) -> None:
        """Fetch them, unless they are in the cache.

        Raises:
            FatalError: no Maven, or it cannot fetch; one line says what to do.
        """
        release = Release(
            name="Apache Kafka",
            version=version,
            # kafka-clients comes along.
            artifacts=(
                (_GROUP, "kafka-group-coordinator", version),
                (_GROUP, "kafka-metadata", version),
                (_GROUP, "kafka-transaction-coordinator", version),
            ),
        )
        paths = map(Path, class_path(release, environment).split(os.pathsep))
        suffix = f"-{version}.jar"
        self._open = {
            path.name.removesuffix(suffix): zipfile.ZipFile(path)
            for path in paths
            if path.name.endswith(suffix)
        }

    def read(self, jar: str, path: str) -> str:
        """The text of one file in a jar, which is named without its version.

        Raises:
            DefinitionError: this version of Kafka has no such file.
        """
        try:
            return self._open[jar].read(path).decode()
        except KeyError:
            raise DefinitionError(f"{jar} has no {path} in this version of Kafka") from None
