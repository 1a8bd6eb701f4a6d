"""Marked secrets go into Spark's jobs, and into nothing that they write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.testing import TestBroker

pytestmark = [pytest.mark.spark, pytest.mark.wire]

MARK = "hunter2-8Jq5"
"""A part of each secret."""


def kafka(settings: dict[str, object]) -> dict[str, str]:
    """Settings of a client as options of Spark."""
    return {f"kafka.{name}": str(value) for name, value in settings.items()}


@pytest.mark.timeout(900)
def test_no_secret_is_in_what_a_job_writes(tmp_path: Path) -> None:
    """Not in plans, logs, event logs, checkpoints, errors, nor in the lists of processes."""
    with TestBroker(
        security="SASL_SSL", users={"alice": MARK}, ssl_client_auth="required"
    ) as broker:
        broker.produce("t", "one")
        broker.create_topic("out")
        settings = broker.client_settings()
        key = str(settings["ssl.keystore.key"])
        # Whatever is not the frame of PEM is the key.
        key_line = key.splitlines()[1]
        work = {
            "folder": str(tmp_path),
            "options": kafka(settings | {"ssl.key.password": MARK}),
            "wrong": [
                kafka({"sasl.jaas.config": f"NoModule required password='{MARK}"}),
                kafka({"sasl.jaas.config": f'PlainLoginModule required password="{MARK}";'}),
                kafka({"ssl.keystor.password": MARK}),
                kafka({"ssl.keystore.key": f"{MARK}{key_line}"}),
                kafka({"bootstrap.servers": "127.0.0.1:1"}) | {"kafka.max.block.ms": "1000"},
            ],
        }
        (tmp_path / "events").mkdir()
        given = tmp_path / "given.json"
        given.write_text(json.dumps(work))
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.secret_job", str(given)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        assert broker.log("out").values() == [b"one", b"v"]
    said = done.stdout
    # It is what a secret would be in.
    assert "Physical Plan" in said
    assert "secret_job" in said
    assert said.count("It failed.") == 2 * len(work["wrong"]), said[-4000:]
    for secret in (MARK, key_line):
        around = [line[-80:] for line in said.split(secret)[:-1]]
        assert around == [], "\n".join(around)
        found = [
            path.relative_to(tmp_path)
            for path in tmp_path.rglob("*")
            if path.is_file() and path != given and secret.encode() in path.read_bytes()
        ]
        assert found == []
    assert list((tmp_path / "events").iterdir())
    assert list((tmp_path / "checkpoint").iterdir())
