"""Attacks a live broker beside clients that work, and says what they notice.

    python -m benchmarks.hostile.run [--seconds 10] [--only WORDS]

The second half is for listeners with TLS and logins, where the clients that work have logged in
over TLS. Exit code 1 if during one of the attacks the 99th percentile of the producer or of the
consumer was more than twice that of the phase before it (what is below a floor does not count), if
the broker took more memory than is allowed, if a record took longer than `LONGEST_MS_MAX`, if an
acknowledged one did not come, or if the broker logged an error. Records are due by the clock, and
latencies count from then.

The scheduler moves a percentile by some milliseconds from one run to the next. An attack with a
percentile above its bound is therefore repeated, and is a miss if two of three rounds are. Nothing
else gets a second chance.

An attacker on the same machine takes a processor, which would be its own elsewhere. So in the phase
before an attack a process computes and does nothing to the broker.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.hostile.attacks import ATTACKS, PARTITION_COUNT
from benchmarks.hostile.attacks import TOPIC as ATTACKED
from benchmarks.hostile.secured_attacks import SECURED_ATTACKS
from benchmarks.hostile.victims import TOPIC, Latencies, Victims, p99
from benchmarks.macro.brokers import BrokerProcess, serving
from benchmarks.macro.secured import Secured

FACTOR_MAX: Final = 2.0
"""Allowed 99th percentile under attack, as a multiple of the one without."""

FLOOR_MS: Final = 10.0
"""A percentile up to this always passes: the scheduler alone may add some milliseconds."""

LONGEST_MS_MAX: Final = 250.0
"""A single record that takes longer has met a broker that stood still."""

RSS_MB_MAX: Final = 900
"""Most memory of a broker with its default settings: it runs on a machine of 1 GB."""

ROUNDS: Final = 3
"""Number of times that an attack is measured whose percentiles are above their bound at first."""

LET_IN: Final = {
    "max.connections": "12000",
    "max.connections.per.ip": "12000",
    "listener.name.ssl.ssl.client.auth": "requested",
}
"""More connections than by default, and certificates: what the attackers ask for."""

SETTLE_S: Final = 1.0
DRAIN_S: Final = 120.0


def main() -> int:
    """Run every attack; 1 on a miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long an attack lasts")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    options = parser.parse_args()
    misses = []
    with tempfile.TemporaryDirectory() as folder:
        if names := [name for name in ATTACKS if options.only in name]:
            with serving(Path(folder) / "data") as broker:
                settings = {"bootstrap.servers": str(broker.address)}
                misses += _attack_broker(broker, settings, names, options.seconds)
        if names := [name for name in SECURED_ATTACKS if options.only in name]:
            secured = Secured.make(Path(folder))
            given = {**secured.settings, **LET_IN, "listeners": secured.listeners}
            with serving(Path(folder) / "secured", settings=given) as broker:
                settings = secured.client_settings("SASL_SSL")
                misses += _attack_broker(broker, settings, names, options.seconds, secured)
    for miss in misses:
        print(f"MISS {miss}")
    return 1 if misses else 0


def _attack_broker(
    broker: BrokerProcess,
    settings: Mapping[str, str],
    names: list[str],
    seconds: float,
    secured: Secured | None = None,
) -> list[str]:
    """The misses of these attacks on a broker, beside clients with these settings."""
    broker.create_topic(TOPIC)
    broker.create_topic(ATTACKED, partition_count=PARTITION_COUNT)
    victims = Victims(settings)
    ports = {
        name: broker.address.port
        if secured is None
        else secured.port_of(SECURED_ATTACKS[name].protocol)
        for name in names
    }
    misses = _attack_all(broker, victims, ports, seconds)
    lost = victims.finish(DRAIN_S)
    print(f"\nacknowledged {len(victims.acknowledged)} records, lost {len(lost)}\n")
    # An error of ours that somebody can cause from outside, with its traceback.
    misses += [line for line in broker.log.read_text().splitlines() if " ERROR " in line]
    if lost:
        misses.append(f"{len(lost)} acknowledged records did not come, the first is {lost[0]}")
    return misses


def _attack_all(
    broker: BrokerProcess, victims: Victims, ports: Mapping[str, int], seconds: float
) -> list[str]:
    print(f"{'':34} {'produce, ms':>16} {'consume, ms':>16}")
    print(f"{'attack':34} {'p99':>8} {'longest':>7} {'p99':>8} {'longest':>7} {'peak RSS':>9}")
    misses = []
    for name, port in ports.items():
        late: list[str] = []
        late_rounds = 0
        for _ in range(ROUNDS):
            percentiles, others = _attack(broker, victims, name, port, seconds)
            misses += others
            late += percentiles
            late_rounds += bool(percentiles)
            if not late_rounds or late_rounds > ROUNDS // 2:
                break
        if late_rounds > ROUNDS // 2:
            misses += late
    return misses


def _attack(
    broker: BrokerProcess, victims: Victims, name: str, port: int, seconds: float
) -> tuple[list[str], list[str]]:
    """One round: the percentiles above their bound, and all other misses."""
    # Other programs of the machine count too: each attack is held against its own quiet phase.
    _quiet(victims, SETTLE_S)
    _forget_peak(broker)
    with _computing():
        quiet = _quiet(victims, seconds)
    _row("(a process that computes)", broker, quiet)
    command = [sys.executable, "-m", "benchmarks.hostile.attacks", name]
    command += [str(port), str(seconds)]
    with subprocess.Popen(command) as attacker:
        time.sleep(seconds)
        attacker.wait(seconds + DRAIN_S)
    during = victims.take(DRAIN_S)
    late, others = [], []
    peak_mb = _row(name, broker, during)
    if peak_mb > RSS_MB_MAX:
        others.append(f"{name}: the broker took {peak_mb} MB of {RSS_MB_MAX}")
    for what in ("produced", "consumed"):
        usual, found = p99(getattr(quiet, what)), p99(getattr(during, what))
        if found > max(FACTOR_MAX * usual, FLOOR_MS):
            late.append(f"{name}: {what} p99 {found:.1f} ms, {usual:.1f} before")
        longest = max(getattr(during, what))
        if longest > LONGEST_MS_MAX:
            others.append(f"{name}: a record was {what} after {longest:.0f} ms")
    return late, others


@contextmanager
def _computing() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


def _quiet(victims: Victims, seconds: float) -> Latencies:
    victims.take(DRAIN_S)
    time.sleep(seconds)
    return victims.take(DRAIN_S)


def _row(name: str, broker: BrokerProcess, found: Latencies) -> int:
    peak_mb = _peak_mb(broker)
    figures = [(p99(each), max(each)) for each in (found.produced, found.consumed)]
    cells = " ".join(f"{percentile:8.1f} {longest:7.1f}" for percentile, longest in figures)
    print(f"{name:34} {cells} {peak_mb:6} MB", flush=True)
    return peak_mb


def _peak_mb(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise RuntimeError("the system does not tell the broker's peak memory")


def _forget_peak(broker: BrokerProcess) -> None:
    Path(f"/proc/{broker.process_id}/clear_refs").write_text("5")


if __name__ == "__main__":
    sys.exit(main())
