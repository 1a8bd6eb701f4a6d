"""`python -m definitions`: write the message tables, or compare them with the definitions."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from compat.artifacts import KAFKA
from definitions.catalog import sources
from definitions.jars import Jars
from definitions.model import parse
from definitions.words import FILE, Words
from definitions.writer import write_module
from tailrace.errors import FatalError

ROOT = Path(__file__).parent.parent
PROTOCOL = ROOT / "src" / "tailrace" / "protocol"


def modules(version: str) -> dict[Path, str]:
    """Every module with its text, from the definitions of a version of Kafka.

    Raises:
        FatalError: Maven cannot fetch the jars, a definition is not understood, or words are
            missing.
    """
    jars, words = Jars(version, os.environ), Words(FILE.read_text(encoding="utf-8"))
    found = {}
    for source in sources():
        definitions = [parse(jars.read(jar, path)) for jar, path in source.definitions]
        found[PROTOCOL / source.path] = write_module(source.section, definitions, words)
    words.check()
    return {path: formatted(path, text) for path, text in found.items()}


def formatted(path: Path, text: str) -> str:
    """A module in the form that `make check` asks for."""
    return subprocess.run(  # noqa: S603 - Ruff of this environment
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"],
        input=text, capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip


def differing(version: str) -> list[str]:
    """The modules of the tree that are not what would be written.

    Raises:
        FatalError: as `modules`.
    """
    return [
        str(path.relative_to(ROOT))
        for path, text in modules(version).items()
        if not path.exists() or path.read_text() != text
    ]


def main() -> None:
    """Read the arguments, fetch, write or compare."""
    parser = argparse.ArgumentParser(description="Write the message tables of the protocol.")
    parser.add_argument("--version", default=KAFKA.version, help="of Apache Kafka")
    parser.add_argument("--check", action="store_true", help="write nothing, and compare")
    chosen = parser.parse_args()
    try:
        if chosen.check:
            found = differing(chosen.version)
            if found:
                sys.exit(f"not what make messages writes: {', '.join(found)}")
            return
        for path, text in modules(chosen.version).items():
            path.write_text(text)
    except FatalError as error:
        sys.exit(f"messages: {error}")


if __name__ == "__main__":
    main()
