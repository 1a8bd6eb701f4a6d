"""`RegistryHttp`: requests to the URLs of a registry, in turn, with JSON in both directions.

A URL that does not answer is followed by the next one; when none does, all are tried again after a
pause. The URL that answered last is asked first.

Invariant: an answer takes no more than `ANSWER_BYTES_MAX` bytes and `http.read.timeout.ms`,
whatever a registry sends; it is neither decompressed nor followed to another place.

Needs urllib3.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import ConfigError, counted
from tailrace.runtime.extras import check_extra
from tailrace.schemas.config import RegistryAddress, RegistryConfig
from tailrace.schemas.errors import RegistryRefusedError, RegistryUnavailableError
from tailrace.schemas.memory_registry import registry_of
from tailrace.schemas.schema import load_json

if TYPE_CHECKING:
    import ssl

    from urllib3 import BaseHTTPResponse, PoolManager

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest answer: a schema of the largest size, with every character escaped, and some room."""

_CHUNK_BYTES: Final = 64 * 1024
_JSON: Final = "application/vnd.schemaregistry.v1+json"
# 500 is among them: a registry answers it when its topic or its leader cannot be reached (error
# codes 50001 to 50004 of its class Errors), which another URL may not suffer from.
_STATUSES_TO_RETRY: Final = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN_CHARACTERS: Final = 200


class MockHttp:
    """Requests to the registry of `mock://SCOPE` in this process, without HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._registry = registry_of(url.partition("://")[2])

    def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any] | list[Any]:
        """The registry's answer.

        Raises:
            RegistryRefusedError: it is an error.
        """
        status, answer = self._registry.answer(method, path, body)
        # By way of JSON, so that nobody changes what the registry keeps.
        content = json.dumps(answer).encode()
        if status != 200:
            raise _refusal(f"{method} {self._url}{path}", status, content)
        made: dict[str, Any] | list[Any] = json.loads(content)
        return made

    def close(self) -> None:
        """Do nothing: other clients use the registry too."""


class RegistryHttp:
    """A client of one registry's REST API; for any number of threads."""

    def __init__(
        self,
        config: RegistryConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clock = clock
        self._pause = pause
        self._pool: PoolManager | None = None
        self._first = 0
        """Index of the URL that is asked first."""

    def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any] | list[Any]:
        """The JSON that the registry answers.

        Raises:
            RegistryUnavailableError: no URL answered, in all attempts.
            RegistryRefusedError: the answer is an error, or no JSON object or list.
            ConfigError: a file of the TLS settings cannot be used.
            MissingExtraError: urllib3 is not installed.
        """
        config, addresses = self._config, self._config.addresses
        wait_ms = config.retry_wait_ms
        failures: list[str] = []
        for attempt in range(config.retries_max + 1):
            if attempt:
                self._pause(min(wait_ms, config.retry_wait_max_ms) / 1000)
                wait_ms *= 2
            failures.clear()
            for turn in range(len(addresses)):
                index = (self._first + turn) % len(addresses)
                try:
                    answer = self._ask(addresses[index], method, path, body=body)
                except RegistryUnavailableError as error:
                    failures.append(str(error))
                    continue
                # Without a lock: two threads may differ about the first URL, and both are right.
                self._first = index
                return answer
        attempts = config.retries_max + 1
        raise RegistryUnavailableError(
            f"the schema registry did not answer in "
            f"{counted(attempts, 'attempt')}: {'; '.join(failures)}; check "
            "schema.registry.url"
        )

    def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.clear()

    def _ask(
        self,
        address: RegistryAddress,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None,
    ) -> dict[str, Any] | list[Any]:
        pool, config = self._opened(), self._config
        from urllib3.exceptions import HTTPError
        from urllib3.util import Timeout

        url = f"{address.url}{path}"
        # urllib3's time limit is for each read of the socket: a server that sends a byte a minute
        # would never reach it.
        deadline = self._clock() + (config.connect_timeout_ms + config.read_timeout_ms) / 1000
        try:
            response = pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers(address),
                timeout=Timeout(
                    connect=config.connect_timeout_ms / 1000, read=config.read_timeout_ms / 1000
                ),
                # urllib3 would try three times by itself and follow redirects: `request` counts the
                # attempts, and a redirect could carry the login to a host that nobody configured.
                # Neither preloaded nor decompressed: a small answer may unpack to gigabytes.
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            content = self._read(response, url, deadline)
        except HTTPError as error:
            raise RegistryUnavailableError(f"{address.url}: {error}") from error
        if response.status in _STATUSES_TO_RETRY:
            raise RegistryUnavailableError(
                f"{address.url}: {_message(content)[0]} (HTTP status {response.status})"
            )
        if not 200 <= response.status < 300:
            raise _refusal(f"{method} {url}", response.status, content)
        try:
            answer = load_json(content.decode())
        except ValueError as error:
            raise RegistryRefusedError(
                f"{method} {url}: the answer is no JSON: {error}; is this a schema registry?",
                status=response.status,
            ) from error
        if not isinstance(answer, dict | list):
            raise RegistryRefusedError(
                f"{method} {url}: the answer is {_shown(content)}, not an object or a list",
                status=response.status,
            )
        return answer

    def _read(self, response: "BaseHTTPResponse", url: str, deadline: float) -> bytes:
        content = bytearray()
        try:
            while chunk := response.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > ANSWER_BYTES_MAX:
                    raise RegistryRefusedError(
                        f"{url}: the answer has more than {ANSWER_BYTES_MAX} bytes",
                        status=response.status,
                    )
                if self._clock() > deadline:
                    raise RegistryUnavailableError(
                        f"{url}: the answer took longer than http.read.timeout.ms, "
                        f"{self._config.read_timeout_ms} ms"
                    )
        except BaseException:
            # Not back into the pool: the rest of the answer would be read as the next one's
            # beginning.
            response.close()
            raise
        response.release_conn()
        return bytes(content)

    def _headers(self, address: RegistryAddress) -> dict[str, str]:
        config = self._config
        headers = {"Accept": f"{_JSON}, application/json", "Content-Type": _JSON}
        user_info = address.user_info or config.basic_auth_user_info
        # A login in the URL wins, since it can differ from one URL to the next.
        if user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(user_info.encode()).decode()}"
        elif config.bearer_auth_token:
            headers["Authorization"] = f"Bearer {config.bearer_auth_token}"
        return headers

    def _opened(self) -> "PoolManager":
        pool = self._pool
        if pool is None:
            check_extra("schemas", "a schema registry", packages=["urllib3"])
            from urllib3 import PoolManager

            is_encrypted = any(each.url.startswith("https:") for each in self._config.addresses)
            context = _tls_context(self._config) if is_encrypted else None
            # Of two threads that come here first, one makes a pool that is not used again.
            pool = self._pool = PoolManager(ssl_context=context, block=False)
        return pool


def _tls_context(config: RegistryConfig) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=config.truststore or None)
    except (OSError, ValueError) as error:
        raise ConfigError([f"ssl.truststore.location: {config.truststore}: {error}"]) from error
    if config.keystore:
        try:
            # A function, so that OpenSSL never asks at the terminal.
            context.load_cert_chain(
                config.keystore, config.key or None, password=lambda: config.key_password
            )
        except (OSError, ValueError) as error:
            raise ConfigError([f"ssl.keystore.location: {config.keystore}: {error}"]) from error
    return context


def _refusal(request: str, status: int, content: bytes) -> RegistryRefusedError:
    message, code = _message(content)
    if status in {401, 403}:
        message += "; check basic.auth.user.info or bearer.auth.token"
    status_text = f"HTTP status {status}" + (f", error {code}" if code else "")
    return RegistryRefusedError(f"{request}: {message} ({status_text})", status=status, code=code)


def _message(content: bytes) -> tuple[str, int]:
    """The sentence and the code of an error as registries write it."""
    try:
        answer = load_json(content.decode())
    except ValueError:
        return _shown(content), 0
    if not isinstance(answer, dict):
        return _shown(content), 0
    message, code = answer.get("message"), answer.get("error_code")
    # Java's messages have line ends and whole schemas in them.
    text = " ".join(message.split()) if isinstance(message, str) else "the registry says no reason"
    return text[:_SHOWN_CHARACTERS], code if type(code) is int else 0


def _shown(content: bytes) -> str:
    return repr(content[:_SHOWN_CHARACTERS].decode(errors="replace"))
