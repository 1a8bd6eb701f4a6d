"""Our sentences about modules, classes and fields, from words.toml.

    [fields]                    a sentence for each field of that name, wherever it is
    [fetch]                     the module `messages/fetch.py`; `_text` is its docstring
    [fetch.fields]              a sentence for each field of that name in this module
    [fetch.PartitionData]       a struct; `_text` is its docstring, the others are its fields;
                                `_name` is our name for it, where that is not Kafka's
    [records.offset_commit]     the module `records/offset_commit.py`

The nearest sentence counts.

Invariant: every class and field has a sentence, and every sentence is used.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from definitions.model import DefinitionError

FILE = Path(__file__).with_name("words.toml")


class Words:
    """The sentences of words.toml, and which of them have been used."""

    def __init__(self, text: str) -> None:
        self._told = dict(_flat(tomllib.loads(text)))
        self._used: set[str] = set()
        self._missing: set[str] = set()

    def of_module(self, section: str) -> str:
        """The docstring of a module."""
        return self._take(f"{section}._text")

    def of_struct(self, section: str, name: str) -> str:
        """The docstring of a struct of Kafka's."""
        return self._take(f"{section}.{name}._text")

    def name(self, section: str, name: str) -> str:
        """Our name for a struct of Kafka's."""
        path = f"{section}.{name}._name"
        return self._take(path) if path in self._told else name

    def of_field(self, section: str, struct: str, name: str) -> str:
        """The docstring of a field."""
        return self._take(
            f"{section}.{struct}.{name}", f"{section}.fields.{name}", f"fields.{name}"
        )

    def check(self) -> None:
        """Refuse what is missing, and what was not used.

        Raises:
            DefinitionError: the message lists all of it.
        """
        faults = [f"missing: {each}" for each in sorted(self._missing)]
        faults += [f"not used: {each}" for each in sorted(self._told.keys() - self._used)]
        if faults:
            raise DefinitionError("\n".join([f"{FILE.name} and definitions differ:", *faults]))

    def _take(self, *paths: str) -> str:
        for path in paths:
            if path in self._told:
                self._used.add(path)
                return self._told[path]
        self._missing.add(paths[0])
        return ""


def _flat(told: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in told.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(inner).strip()
