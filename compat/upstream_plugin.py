"""pytest plugin with which the test suites of Kafka clients run outside of their own surroundings.

It writes one JSON line a test, `{"test": …, "outcome": …, "message": …}`, to the file that the
environment names, and stands in for what is not here and no test that is run uses:

    test            kafka-python's tests are a package of this name, as Python's own are
    test.service    starts Kafka and ZooKeeper; is not in kafka-python's source distribution
    trivup          starts Kafka and a Schema Registry for confluent-kafka's tests
    confluent_kafka.avro, confluent_kafka.schema_registry
                    need packages for a Schema Registry, which neither broker has

Invariant: nothing that exists is changed; a suite runs as it was published.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = "TAILRACE_COMPAT_RESULTS"
"""Environment variable with the path of the results."""

_ABSENT = ("trivup", "confluent_kafka.avro", "confluent_kafka.schema_registry", "test.service")


class _Empty(ModuleType):
    """A module that has any class one asks for, without anything in it."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": _ignore, "stop": _ignore})
        setattr(self, name, made)
        return made


class _Absent(MetaPathFinder, Loader):
    """Finds the modules that are stood in for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A package, for what is absent and what is inside of it."""
        del path, target
        if any(fullname == name or fullname.startswith(f"{name}.") for name in _ABSENT):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it has no code."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the result of a phase of a test; the reader keeps the worst of them."""
    if report.when != "call" and report.outcome == "passed":
        return
    message = report.longreprtext.strip().splitlines()[-1:] if report.outcome == "failed" else []
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        message = [report.longrepr[2]]
    line = {"test": report.nodeid, "outcome": report.outcome, "message": "".join(message)}
    with Path(os.environ[RESULTS]).open("a") as results:
        results.write(json.dumps(line) + "\n")


def _ignore(self: object, *_: object, **__: object) -> None:
    """Take anything and do nothing."""


# pytest imports a suite's conftest before it calls any hook, so this is done at once.
sys.meta_path.insert(0, _Absent())
sys.modules["test"] = ModuleType("test")
sys.modules["test"].__path__ = [str(Path("test").resolve())]
