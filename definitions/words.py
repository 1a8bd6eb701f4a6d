"""Our sentences about modules, classes and fields, from words.toml.

    [fields]                    a sentence for each field of that name, wherever it is
    [fetch]                     the module `messages/fetch.py`; `_text` is its docstring
    [fetch.fields]              a sentence for each field of that name in this module
    [fetch.PartitionData]       a struct; `_text` is its docstring, the others are its fields;
                                `_name` is our name for it, where that is not Kafka's
    [records]                   the module `records.py`

The most specific sentence counts. A class or a field whose name says all has none.

Invariant: every module has a sentence, and every sentence is used.
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
        self._sentences = dict(_flat(tomllib.loads(text)))
        self._used: set[str] = set()
        self._missing: set[str] = set()

    def of_module(self, section: str) -> str:
        """The docstring of a module."""
        path = f"{section}._text"
        if path not in self._sentences:
            self._missing.add(path)
        return self._find(path)

    def of_struct(self, section: str, name: str) -> str:
        """The docstring of a struct of Kafka's; empty: it needs none."""
        return self._find(f"{section}.{name}._text")

    def name(self, section: str, name: str) -> str:
        """Our name for a struct of Kafka's."""
        return self._find(f"{section}.{name}._name") or name

    def of_field(self, section: str, struct: str, name: str) -> str:
        """The comment for a field; empty: it needs none."""
        return self._find(
            f"{section}.{struct}.{name}", f"{section}.fields.{name}", f"fields.{name}"
        )

    def check(self) -> None:
        """Refuse what is missing, and what was not used.

        Raises:
            DefinitionError: the message lists all of it.
        """
        faults = [f"missing: {each}" for each in sorted(self._missing)]
        faults += [f"not used: {each}" for each in sorted(self._sentences.keys() - self._used)]
        if faults:
            raise DefinitionError("\n".join([f"{FILE.name} and definitions differ:", *faults]))

    def _find(self, *paths: str) -> str:
        for path in paths:
            if path in self._sentences:
                self._used.add(path)
                return self._sentences[path]
        return ""


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in table.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(inner).strip()
