"""Tests of the modules that a broker imports to start, and of those it imports when asked.

Each test runs in an interpreter of its own, because this one has imported everything.
"""

import json
import subprocess
import sys
from inspect import signature

import pytest

from tailrace.broker.wiring import load_handler
from tailrace.protocol.apis import APIS, Api

SERVE = """
import io, json, os, signal, sys

class Output(io.StringIO):
    def write(self, text):
        if "started" in text:
            print(json.dumps(sorted(sys.modules)), file=sys.__stdout__)
            os.kill(os.getpid(), signal.SIGTERM)
        return len(text)

sys.stdout = Output()
from tailrace.cli import main
main()
print(json.dumps(sorted(sys.modules)), file=sys.__stdout__)
"""

ASK = """
import json, sys
from tailrace.protocol.apis import APIS
from tailrace.protocol.frames import read_request_header

for key, api in APIS.items():
    before = set(sys.modules)
    read_request_header(memoryview(bytes([0, key, 0, api.last_version, 0, 0, 0, 1, 255, 255, 0])))
    print(json.dumps(sorted(set(sys.modules) - before)))
"""

FIRST_USE = """
import json, sys
from importlib import import_module

import_module(sys.argv[1])
from tailrace.coordinator.groups.topics import compile_pattern
from tailrace.protocol import coordinator_records
from tailrace.protocol.coordinator_records import decode_key, decode_value, encode_key, encode_value

late = []
kinds = getattr(coordinator_records, sys.argv[2])
watched = {"compile", "import"}
sys.addaudithook(lambda event, _: late.append(event) if event in watched else None)
for kind in kinds:
    if kind.name == "LEGACY_OFFSET_COMMIT":
        continue
    key, value = coordinator_records.key_class(kind), coordinator_records.value_class(kind)
    version = {"OFFSET_COMMIT": 4, "GROUP_METADATA": 3, "TRANSACTION_LOG": 1}.get(kind.name, 0)
    decode_key(key, encode_key(key()))
    decode_value(value, encode_value(value(), version))
if kinds.__name__.startswith("Group"):
    compile_pattern("flights-.*")
print(json.dumps(late))
"""

MESSAGES, HANDLERS = "tailrace.protocol.messages.", "tailrace.handlers."
STATEFUL = {f"{HANDLERS}fetch_sessions", f"{HANDLERS}services"}
"""The modules of handlers that are no API, and have what lives longer than a request."""


def printed(script: str, *arguments: str) -> list[list[str]]:
    """The lists of modules that a script prints, in an interpreter of its own."""
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The modules of a `tailrace serve` when it is ready, and when it has stopped."""
    data = tmp_path_factory.mktemp("data")
    ready, stopped = printed(SERVE, "serve", "--data", str(data), "--listen", "127.0.0.1:0")
    return set(ready), set(stopped)


def test_a_broker_starts_without_any_api(served: tuple[set[str], set[str]]) -> None:
    """However many APIs there are, none has been imported when a broker is ready."""
    ready, _ = served
    assert not [name for name in ready if name.startswith(MESSAGES)]
    assert {name for name in ready if name.startswith(HANDLERS)} == STATEFUL


@pytest.mark.parametrize(
    "prefix",
    [
        "numpy", "pyarrow", "pandas", "pyspark", "cramjam",
        "importlib.metadata", "email", "shutil", "difflib", "tailrace.storage.cleaner.rewrite",
        "tailrace.client", "tailrace.demo", "tailrace.offline", "tailrace.spark",
        "tailrace.testing", "tailrace.cli.log", "tailrace.cli.pipeline", "tailrace.cli.demo",
    ],
)  # fmt: skip
def test_a_broker_starts_without(served: tuple[set[str], set[str]], prefix: str) -> None:
    """Modules that only some requests or commands need are not imported at the start."""
    ready, _ = served
    assert not [name for name in ready if name == prefix or name.startswith(f"{prefix}.")]


def test_all_apis_are_loaded_beside_serving(served: tuple[set[str], set[str]]) -> None:
    """No request waits on the event loop for an import: all are done on another thread."""
    _, stopped = served
    for api in APIS.values():
        assert {f"{MESSAGES}{api.key.module}", load_handler(api.key).__module__} <= stopped


def test_the_first_request_of_an_api_imports_its_messages() -> None:
    """A request loads the messages of its own API, and of no other."""
    for api, loaded in zip(APIS.values(), printed(ASK), strict=True):
        found = {name for name in loaded if name.startswith(MESSAGES)}
        assert found == {f"{MESSAGES}{api.key.module}"}


def test_a_fetch_needs_no_group() -> None:
    """The first Fetch of a new broker imports no machine of consumer groups."""
    [loaded] = printed(
        "import json, sys, tailrace.handlers.repeated_fetch; print(json.dumps(sorted(sys.modules)))"
    )
    assert not [name for name in loaded if name.endswith(("groups.machine", "offset_commit"))]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.title)
def test_every_served_api_has_a_handler(api: Api) -> None:
    """The handler takes the services, the header and the request, under the API's name."""
    assert len(signature(load_handler(api.key)).parameters) == 3


@pytest.mark.parametrize(
    ("modules", "kinds"),
    [
        ("tailrace.coordinator.groups.modules", "GroupRecordType"),
        ("tailrace.coordinator.transactions.modules", "TransactionRecordType"),
    ],
)
def test_a_coordinator_is_ready_for_its_first_record(modules: str, kinds: str) -> None:
    """Nothing is imported or compiled on the loop when it writes one, or matches an expression."""
    [late] = printed(FIRST_USE, modules, kinds)
    assert late == []
