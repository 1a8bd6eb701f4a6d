"""An installed package, with what it brings and pytest alone; `make wheels` runs it for each wheel.

It imports nothing else of the tests, so that it runs in an environment without the checkout.
"""

import re
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import tailrace
from tailrace.testing import TestBroker

COMMAND = Path(sysconfig.get_path("scripts")) / "tailrace"
PACKAGE = Path(tailrace.__file__).parent
RECORDS = 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of the broker."""
    return tmp_path / "data"


@pytest.fixture
def address(data: Path) -> Iterator[str]:
    """A broker that the installed command serves, and that has to stop in order after the test."""
    command = [str(COMMAND), "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            lines = iter(broker.stdout.readline, "")
            found = next(filter(None, (re.search(r"listening on (\S+),", line) for line in lines)))
            yield found[1]
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(60) == 0
        finally:
            broker.kill()


def test_compiled_modules_are_compiled() -> None:
    """Each module that has C types is loaded from its extension, though its source is there too."""
    parts = [types.relative_to(PACKAGE).with_suffix("").parts for types in PACKAGE.rglob("*.pxd")]
    files = [import_module(".".join(("tailrace", *each))).__file__ for each in parts]
    assert [file for file in files if not str(file).endswith(tuple(EXTENSION_SUFFIXES))] == []


def test_records_come_back_and_the_log_is_clean(address: str, data: Path) -> None:
    """Keyed records pass a served broker to a group in the order of each key, and all is intact."""
    sent = {b"%d" % key: [b"%d" % value for value in range(key, RECORDS, 7)] for key in range(7)}
    with tailrace.Producer(bootstrap_servers=address) as producer:
        for value in range(RECORDS):
            producer.send("smoke", b"%d" % value, key=b"%d" % (value % 7))
    read: dict[bytes | None, list[bytes | None]] = {}
    with tailrace.Consumer(
        bootstrap_servers=address, group_id="smoke", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe("smoke")
        for record in consumer:
            read.setdefault(record.key, []).append(record.value)
            if sum(map(len, read.values())) == RECORDS:
                break
    assert read == sent
    verified = subprocess.run(
        [COMMAND, "log", "verify", "--data", data], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout


def test_pytest_has_the_broker(tailrace_broker: TestBroker) -> None:
    """The fixture is there without a line of configuration."""
    tailrace_broker.produce("orders", "one")
    assert tailrace_broker.log("orders").values() == [b"one"]
