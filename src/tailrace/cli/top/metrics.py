"""Metrics of brokers: their pages for Prometheus, read beside everything else.

A Tailrace broker says in `tailrace.http.listener` where its page is. The names of the metrics are
those of Kafka's usual exporters (decision 91), so the page of such an exporter is understood too.

Invariant: whatever a page has, it takes `PAGE_BYTES_MAX` bytes and `SAMPLES_MAX` values at most,
and reading takes `READ_S` on a thread of its own, which nothing waits for.
"""

import re
import threading
from collections.abc import Callable, Mapping
from io import BytesIO
from ipaddress import ip_address
from math import isfinite
from typing import Final

from tailrace.errors import TailraceError
from tailrace.security.http_request import http_request
from tailrace.values import dataclass

PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest page: of a broker with some 10,000 partitions."""
LINE_BYTES_MAX: Final = 8 * 1024
SAMPLES_MAX: Final = 20_000
"""Most values of a page that are kept; those of topics and partitions are not among them."""
CONNECT_S: Final = 2.0
READ_S: Final = 10.0
SHARE: Final = 0.1
"""Largest part of the time in which a broker is occupied with its page."""
THREADS_MAX: Final = 4

_PREFIXES: Final = (
    b"kafka_network_", b"kafka_server_", b"kafka_log_logcleaner_", b"process_", b"tailrace_",
)  # fmt: skip
_SAMPLE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]
"""Values by the name of the metric, and its labels in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The metrics of one broker at one moment."""

    at: float
    samples: Samples

    def total(self, *names: str, **labels: str) -> float | None:
        """The sum of the values with these labels, of the first metric of these that is there."""
        for name in names:
            found = [
                value
                for known, value in self.samples.get(name, {}).items()
                if labels.items() <= dict(known).items()
            ]
            if found:
                return sum(found)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The newest page of a broker, and the one before."""

    page: Page
    before: Page | None

    def per_s(self, *names: str, **labels: str) -> float | None:
        """The rise of a counter in a second; None: not known, or it has begun again."""
        if self.before is None or self.before.at >= self.page.at:
            return None
        now, then = (each.total(*names, **labels) for each in (self.page, self.before))
        # Something that is counted for the first time was there with nothing before.
        if then is None and any(each in self.before.samples for each in names):
            then = 0.0
        if now is None or then is None or now < then:
            return None
        return (now - then) / (self.page.at - self.before.at)


def parse_samples(page: bytes) -> dict[str, dict[Labels, float]]:
    """The values of a page in Prometheus' text format; lines of another form are left out."""
    found: dict[str, dict[Labels, float]] = {}
    left = SAMPLES_MAX
    for line in BytesIO(page):
        # Topics and partitions are known by the protocol, and are most of a page.
        if not line.startswith(_PREFIXES) or b'topic="' in line or len(line) > LINE_BYTES_MAX:
            continue
        sample = _SAMPLE.fullmatch(line.decode(errors="replace").rstrip())
        value = None if sample is None else _number(sample[3])
        if sample is None or value is None:
            continue
        labels = tuple(sorted((name, each) for name, each in _LABEL.findall(sample[2] or "")))
        found.setdefault(sample[1], {})[labels] = value
        left -= 1
        if not left:
            break
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def listener_url(listener: str, host: str) -> str | None:
    """The page of the broker at `host` whose `tailrace.http.listener` is this; None: it has none.

    One for its own machine alone is none for another, where the same address is something else.
    """
    own, _, port = listener.rpartition(":")
    own = own.strip("[]")
    # Port 0: the broker has chosen one.
    if not port.isdigit() or not 0 < int(port) < 1 << 16:
        return None
    if own in _ANY_HOST:
        own = host
    elif _is_loopback(own) and not _is_loopback(host):
        return None
    return f"http://{f'[{own}]' if ':' in own else own}:{port}/metrics"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Scraper:
    """Reads the pages of brokers, each on a thread, and no page too often."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        self._due: dict[int, float] = {}
        self._found: dict[int, Scrape] = {}
        self._failures: dict[int, str] = {}

    @property
    def found(self) -> dict[int, Scrape]:
        """The newest pages by broker; none of one whose page could not be read the last time."""
        with self._lock:
            return {
                number: each for number, each in self._found.items() if number not in self._failures
            }

    @property
    def failures(self) -> dict[int, str]:
        """Why the last attempt has failed, by broker."""
        with self._lock:
            return dict(self._failures)

    def begin(self, urls: Mapping[int, str], *, all_due: bool = False) -> None:
        """Begin to read the pages that are due, or with `all_due` each; returns at once."""
        now = self._clock()
        with self._lock:
            for known in (self._found, self._failures, self._due):
                for number in known.keys() - urls.keys():
                    del known[number]
            running = {number: each for number, each in self._threads.items() if each.is_alive()}
            due = [
                number
                for number in urls
                if number not in running and (all_due or self._due.get(number, now) <= now)
            ]
            for number in due[: THREADS_MAX - len(running)]:
                running[number] = threading.Thread(
                    target=self._read, args=(number, urls[number]), name="top-page", daemon=True
                )
                running[number].start()
            self._threads = running

    def wait(self, seconds: float) -> None:
        """Return when no page is being read, or after `seconds`."""
        end = self._clock() + seconds
        for each in self._threads.values():
            each.join(max(end - self._clock(), 0))

    def _read(self, number: int, url: str) -> None:
        began = self._clock()
        try:
            answer = http_request(
                "GET", url, headers={"Accept": "text/plain"}, context=None,
                connect_timeout_s=CONNECT_S, read_timeout_s=READ_S, bytes_max=PAGE_BYTES_MAX,
            )  # fmt: skip
            failure = None if answer.status == 200 else f"{url} answers with status {answer.status}"
            samples = parse_samples(answer.body)
        except (OSError, ValueError, TailraceError) as error:
            failure, samples = f"{url}: {error}", {}
        now = self._clock()
        with self._lock:
            self._due[number] = now + (now - began) * (1 / SHARE - 1)
            if failure is not None:
                self._failures[number] = failure
                self._found.pop(number, None)
                return
            self._failures.pop(number, None)
            before = self._found.get(number)
            # The moment of the values is about that of the request.
            page = Page(at=began, samples=samples)
            self._found[number] = Scrape(page=page, before=None if before is None else before.page)


def quantile_ms(page: Page, request: str, quantile: str = "0.99") -> float | None:
    """The time that this part of the requests of an API does not exceed."""
    return page.total(
        "kafka_network_requestmetrics_totaltimems", request=request, quantile=quantile
    )


def requests_in(page: Page) -> set[str]:
    """The names of the APIs that a broker has answered, each request under one of them."""
    labels = page.samples.get("kafka_network_requestmetrics_requests_total", {})
    found = {dict(each).get("request", "") for each in labels}
    # Kafka counts a Fetch under two names, and a Tailrace broker under the more exact one.
    return found - {"FetchConsumer", "FetchFollower"} if "Fetch" in found else found


def request_rate(scrape: Scrape) -> float | None:
    """Requests of all APIs in a second."""
    rates = [
        rate
        for name in requests_in(scrape.page)
        if (rate := scrape.per_s("kafka_network_requestmetrics_requests_total", request=name))
        is not None
    ]
    return sum(rates) if rates else None
