"""The keys of a token issuer: a JSON Web Key Set (RFC 7517), from a file or by HTTP.

    find(kid) -> a known key              -> at once
              -> a known key, an old set  -> at once, and the set is read again on another thread
              -> a very old set           -> read first, by the thread that asks
              -> an unknown kid           -> read first, if that was not done just now

Very old is a set that nobody has asked for since it was due: twice `refresh_s`. A key that the
issuer has withdrawn meanwhile must not log in the first who comes.

Invariant: a set that was read stays in use until another one was; a failure is logged, and the next
attempt waits. So an issuer that is down, or hangs, stops nobody whose key is known, and tokens with
made-up keys cannot make this broker ask without end. The set is bounded: `BYTES_MAX`, `KEYS_MAX`.
"""

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tailrace.errors import FatalError
from tailrace.security.http_request import OversizedAnswerError, http_request
from tailrace.values import dataclass

logger = logging.getLogger(__name__)

BYTES_MAX: Final = 1024 * 1024
"""Largest set that is read; a key has some 500 bytes."""

KEYS_MAX: Final = 1000
"""Most keys of a set."""

UNKNOWN_ID_PAUSE_S: Final = 60.0
"""Least time between two reads for the same unknown key id, as in Kafka's RefreshingHttpsJwks."""

KEY_ID_CHARACTERS_MAX: Final = 1000
"""Longest key id for which the set is read, as there."""

_UNKNOWN_IDS_MAX: Final = 16
_SAID_MAX: Final = 200

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

Key = Mapping[str, Any]
"""A key as the set has it."""


class KeySetError(FatalError):
    """There are no keys yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySetSource:
    """The place of a key set, and how often it is read."""

    url: str
    """`file:`, `https:`, or `http:` on this machine; see `key_set_fault`."""
    refresh_s: float = 3600.0
    """`sasl.oauthbearer.jwks.endpoint.refresh.ms`"""
    retry_s: float = 0.1
    """`sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`"""
    retry_s_max: float = 10.0
    """`sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`; unknown keys together are asked for no
    more often."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    context: ssl.SSLContext | None = None
    """Checks the endpoint's certificate; None: against the authorities of the system."""

    def read(self) -> Sequence[Key]:
        """The keys; blocks.

        Raises:
            OSError, ValueError, OversizedAnswerError: they cannot be had.
        """
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                data = file.read(BYTES_MAX + 1)
            if len(data) > BYTES_MAX:
                raise ValueError(f"it has more than {BYTES_MAX} bytes")
            return read_keys(data)
        answer = http_request(
            "GET",
            self.url,
            headers={"Accept": "application/json"},
            context=self.context,
            connect_timeout_s=self.connect_timeout_s,
            read_timeout_s=self.read_timeout_s,
            bytes_max=BYTES_MAX,
        )
        if answer.status != HTTPStatus.OK:
            to = answer.location[:_SAID_MAX]
            more = f", which redirects to {to!r}; that is not followed" if to else ""
            raise ValueError(f"the answer has status {answer.status}{more}")
        return read_keys(answer.body)


class KeySet:
    """The keys of one issuer; any thread may ask for them."""

    def __init__(
        self,
        source: KeySetSource,
        *,
        clock: Callable[[], float] = time.monotonic,
        run_beside: Callable[[Callable[[], None]], None] = lambda read: threading.Thread(
            target=read, name="tailrace-key-set", daemon=True
        ).start(),
    ) -> None:
        """`run_beside` runs what nobody waits for; one at a time."""
        self._source = source
        self._clock = clock
        self._run_beside = run_beside
        self._lock = threading.Lock()
        """Held while the set is read."""
        self._keys: Sequence[Key] = ()
        self._failure = ""
        self._failures = 0
        self._read_at = float("-inf")
        """When it was last tried to read it."""
        self._stale_at = float("-inf")
        """When it has to be read again."""
        self._looked_for: dict[str, float] = {}
        """When the set was read for an unknown key id, for the last ids."""

    def find(self, key_id: object, key_type: str, curve: str) -> Sequence[Key]:
        """The keys of a type and curve with this id; None: with any id. May wait for the issuer.

        Raises:
            KeySetError: the set could not be read yet.
        """
        found = self._known(key_id, key_type, curve)
        now = self._clock()
        if now < self._stale_at:
            is_due = not found and self._may_look_for(key_id, now)
        elif found and now < self._stale_at + self._source.refresh_s:
            if self._lock.acquire(blocking=False):
                try:
                    self._run_beside(self._read_and_release)
                except RuntimeError as error:
                    # There are too many threads; the next login tries again.
                    self._lock.release()
                    logger.warning("key_set_not_read url=%s reason=%s", self._source.url, error)
            is_due = False
        else:
            is_due = True
        # With keys at hand only one login waits for the issuer, and the others use those.
        if is_due and self._lock.acquire(blocking=not self._keys):
            # Another thread may have read it meanwhile.
            if self._read_at > now:
                self._lock.release()
            else:
                self._note(key_id, now)
                self._read_and_release()
            found = self._known(key_id, key_type, curve)
        if not self._keys:
            raise KeySetError(f"there are no keys to check it: {self._failure}")
        return found

    def _known(self, key_id: object, key_type: str, curve: str) -> Sequence[Key]:
        return [
            each
            for each in self._keys
            if (key_id is None or each.get("kid") == key_id)
            and each.get("kty") == key_type
            and (not curve or each.get("crv") == curve)
            and each.get("use", "sig") == "sig"
        ]

    def _may_look_for(self, key_id: object, now: float) -> bool:
        """Whether to read the set for an id that it lacks."""
        if not isinstance(key_id, str) or len(key_id) > KEY_ID_CHARACTERS_MAX:
            return False
        # Kafka's rule alone does not limit made-up ids, of which each is another one.
        if now - self._read_at < self._source.retry_s_max:
            return False
        return now - self._looked_for.get(key_id, float("-inf")) >= UNKNOWN_ID_PAUSE_S

    def _note(self, key_id: object, now: float) -> None:
        """Note for which id the set is read; with the lock."""
        if isinstance(key_id, str) and len(key_id) <= KEY_ID_CHARACTERS_MAX:
            self._looked_for[key_id] = now
            if len(self._looked_for) > _UNKNOWN_IDS_MAX:
                del self._looked_for[next(iter(self._looked_for))]

    def _read_and_release(self) -> None:
        try:
            self._read()
        finally:
            self._lock.release()

    def _read(self) -> None:
        source = self._source
        try:
            self._keys = source.read()
            self._failures = 0
            pause_s = source.refresh_s
        except (OSError, ValueError, OversizedAnswerError) as error:
            reason = _reason(error)
            self._failure = f"{source.url}: {reason}"
            self._failures += 1
            pause_s = min(source.retry_s * 2 ** min(self._failures - 1, 20), source.retry_s_max)
            logger.warning(
                "key_set_not_read url=%s reason=%s keys_in_use=%d next_attempt_ms=%.0f",
                source.url, reason, len(self._keys), pause_s * 1000,
            )  # fmt: skip
        self._read_at = self._clock()
        self._stale_at = self._read_at + pause_s


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}; give its authorities by "
            "ssl.truststore.location in the JAAS entry of OAUTHBEARER"
        )
    return str(error) or type(error).__name__


def read_keys(data: bytes) -> Sequence[Key]:
    """The keys of a set; members that are no objects are left out.

    Raises:
        ValueError: it is no key set, or has no key or too many.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    members = found.get("keys") if isinstance(found, dict) else None
    keys = [each for each in members if isinstance(each, dict)] if isinstance(members, list) else ()
    if not 0 < len(keys) <= KEYS_MAX:
        raise ValueError(f"it is no key set with 1 to {KEYS_MAX} keys, but has {len(keys)}")
    return keys


def key_set_fault(url: str) -> str | None:
    """The reason why this is no address of a key set; None: it is one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"{url[:80]!r} is no URL: {error}"
    if not (url.isascii() and url.isprintable()):
        return f"{url[:80]!r} is no URL"
    if parts.scheme == "file":
        is_local = parts.path.startswith("/") and host in {None, "", "localhost"}
        return None if is_local else f"{url[:80]!r} is no file; it has to be file:///PATH"
    if parts.scheme not in {"http", "https"} or not host:
        return f"{url[:80]!r} is no URL; it has to begin with https://HOST/ or file:///"
    # Who can change the keys on their way can make every token.
    if parts.scheme == "http" and host not in _LOOPBACK:
        return "the keys would come in the clear; http:// is for this machine alone"
    return None
