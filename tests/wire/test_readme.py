"""The programs of the README that send and read, one after the other, as a new user runs them."""

import re
import signal
import subprocess
import sys

from tailrace.testing.broker import TestBroker
from tests.references import ROOT


def programs(title: str, broker: TestBroker) -> list[str]:
    """The Python programs under a title of the README, for this broker."""
    (section,) = re.findall(
        rf"^## {title}\n(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return [each.replace("localhost:9092", broker.bootstrap_servers) for each in found]


def test_the_programs_show_what_was_sent() -> None:
    """The consumer prints the producer's records, and ends at Ctrl-C without a word."""
    with TestBroker() as broker:
        (send,) = programs("Send records", broker)
        read, ask = programs("Read records, and administer a cluster", broker)
        assert b"topic='flights', partition=0, offset=0" in output_of(send)
        reading = subprocess.Popen(
            [sys.executable, "-u", "-c", read], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert reading.stdout is not None
        lines = [reading.stdout.readline() for _ in range(1001)]
        reading.send_signal(signal.SIGINT)
        rest = reading.communicate(timeout=60)
        assert (reading.returncode, *rest) == (0, b"", b"")
        assert lines[0] == b"0 b'B6 1' b'JFK'\n"
        assert lines[-1] == b"1000 None b'flight 999'\n"
        assert b"flights 1\n" in output_of(ask)


def output_of(program: str) -> bytes:
    """The standard output of a program that ends well."""
    return subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE
    ).stdout
