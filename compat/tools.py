"""Needs of the checks besides this checkout: Java, both Kafkas, clients of other languages."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.artifacts import KAFKA, OLD_KAFKA, class_path
from compat.others import OtherClient, find_clients, find_more_clients
from tailrace.spark.java import find_java


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The Java and the jars that start both Kafkas, and the clients of other languages."""

    java: Path
    jars: str
    old_jars: str
    others: Sequence[OtherClient]
    without_transactions: Sequence[OtherClient]
    """More of them, whose programs have no transactions."""


def find_tools() -> Tools:
    """Fetched if they are not in the cache.

    Raises:
        FatalError: no Java, Maven, Go, Node or Rust; one line says what to do.
    """
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    return Tools(
        java=java,
        jars=jars,
        old_jars=class_path(OLD_KAFKA, os.environ),
        others=find_clients(java, jars, os.environ),
        without_transactions=find_more_clients(os.environ),
    )
