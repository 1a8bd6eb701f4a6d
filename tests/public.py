"""The public modules of the package, and the list of their names for docs/public-names.md."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Final

PUBLIC: Final = {
    "tailrace": "clients, a broker in a program, and logs from their files",
    "tailrace.client.producer": "values and errors of the producers",
    "tailrace.client.consumer": "values and errors of the consumers",
    "tailrace.client.admin": "values and errors of the admin clients",
    "tailrace.client.opentelemetry": "metrics and traces of clients",
    "tailrace.errors": "errors of settings, logs and directories, and the bases of all errors",
    "tailrace.reading": "values of logs that are read from their files",
    "tailrace.schemas": "serializers, deserializers and schema registries",
    "tailrace.spark": "a session of Spark, and jobs over whole logs",
    "tailrace.testing": "brokers, clusters and registries for tests",
    "tailrace.demo.flights": "the data of `make demo` and of the notebook",
}
"""Public is what `__all__` of these modules has; docs/versions.md has the rule."""


def public_names() -> Iterator[tuple[str, str, object]]:
    """Each public name: its module, the name, and the object."""
    for module in PUBLIC:
        names = import_module(module).__all__
        for name in names:
            yield module, name, getattr(import_module(module), name)


def public_page() -> str:
    """docs/public-names.md."""
    text = (
        "# Public names\n\n<!-- Written by `make docs`; do not edit. -->\n\n"
        "Programs may import these; [versions](versions.md) has the rule. `make reference` builds "
        "pages with everything about each.\n"
    )
    owner = ""
    for module, name, each in public_names():
        if module != owner:
            owner = module
            text += f"\n## `{module}`\n\n{PUBLIC[module].capitalize()}.\n\n"
        first = (inspect.getdoc(each) or "").split("\n\n")[0].replace("\n", " ")
        text += f"- `{name}`: {first}\n"
    return text
