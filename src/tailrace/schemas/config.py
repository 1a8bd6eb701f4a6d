"""`RegistryConfig`: the settings of a schema registry and of serializers, by Confluent's names.

A name may have the prefix `schema.registry.`, as Confluent's Java clients write it, and underscores
instead of dots. Times are ms.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from tailrace.config import (
    Setting,
    field_values,
    parse_settings,
    setting,
    settings_of,
    settings_texts,
)
from tailrace.config.settings import INT32_MAX, settings_together, shown_fields
from tailrace.errors import ConfigError
from tailrace.schemas.memory_registry import MOCK
from tailrace.values import dataclass

_PREFIX: Final = "schema.registry."
_URL: Final = "schema.registry.url"
_HINTS: Final = {
    "url": f"say {_URL}",
    "ssl.ca.location": "say ssl.truststore.location, a PEM file",
    "ssl.certificate.location": "say ssl.keystore.location, a PEM file",
    "timeout": "say http.read.timeout.ms",
    "subject.name.strategy": "say key.subject.name.strategy or value.subject.name.strategy",
}


class SubjectStrategy(Enum):
    """Rules that name the subject that a schema is registered under."""

    TOPIC = "TopicNameStrategy"
    """TOPIC-key or TOPIC-value."""
    RECORD = "RecordNameStrategy"
    """The full name of the record."""
    TOPIC_RECORD = "TopicRecordNameStrategy"
    """TOPIC-NAME."""


_SHORT: Final = {"topic": "TOPIC", "record": "RECORD", "topic-record": "TOPIC_RECORD"}
_STRATEGIES: Final = tuple(each.value for each in SubjectStrategy)


class RegistryAddress(NamedTuple):
    """A URL of a registry, without what logs in."""

    url: str
    """With scheme, host, port and path, without a slash at the end."""
    user_info: str
    """USER:PASSWORD of the URL, or nothing."""

    def __repr__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RegistryConfig:
    """Settings of a registry: its URLs, the login, time limits, and the work of serializers."""

    addresses: tuple[RegistryAddress, ...] = settings_together(
        Setting(
            name=_URL,
            default="",
            text="URLs of the registry, with commas between; they are tried in turn.",
        )
    )
    basic_auth_user_info: str = setting(
        "basic.auth.user.info",
        default="",
        is_secret=True,
        text="USER:PASSWORD for basic authentication. A URL may have it too.",
    )
    bearer_auth_token: str = setting(
        "bearer.auth.token", default="", is_secret=True, text="A token to log in with."
    )
    truststore: str = setting(
        "ssl.truststore.location",
        default="",
        text="PEM file with the authorities that certificates are checked against; the system's if "
        "empty.",
    )
    keystore: str = setting(
        "ssl.keystore.location",
        default="",
        text="PEM file with the client's certificate, and its key unless `ssl.key.location` has "
        "it.",
    )
    key: str = setting(
        "ssl.key.location", default="", text="PEM file with the client's private key."
    )
    key_password: str = setting(
        "ssl.key.password", default="", is_secret=True, text="Password of the private key."
    )
    connect_timeout_ms: int = setting(
        "http.connect.timeout.ms",
        default=10_000,
        low=1,
        high=INT32_MAX,
        text="How long a connection may take to be opened.",
    )
    read_timeout_ms: int = setting(
        "http.read.timeout.ms",
        default=60_000,
        low=1,
        high=INT32_MAX,
        text="How long an answer may take, to its last byte.",
    )
    retries_max: int = setting(
        "max.retries",
        default=3,
        low=0,
        high=1000,
        text="How often all URLs are tried again if none answers.",
    )
    retry_wait_ms: int = setting(
        "retries.wait.ms",
        default=1000,
        low=0,
        high=INT32_MAX,
        text="Pause before the first retry; doubled for each further one.",
    )
    retry_wait_max_ms: int = setting(
        "retries.max.wait.ms",
        default=20_000,
        low=0,
        high=INT32_MAX,
        text="Longest pause between retries.",
    )
    cache_capacity: int = setting(
        "cache.capacity",
        default=1000,
        low=1,
        high=1_000_000,
        text="Most schemas that are kept; the oldest is forgotten. An id never changes its schema, "
        "so there is no time limit.",
    )
    latest_ttl_s: float = setting(
        "latest.cache.ttl.sec",
        default=300.0,
        low=0,
        text="How long the latest version of a subject is kept, for `use.latest.version`.",
    )
    registers: bool = setting(
        "auto.register.schemas",
        default=True,
        text="Serializers register their schema; `false`: it has to be there.",
    )
    uses_latest: bool = setting(
        "use.latest.version",
        default=False,
        text="Serializers write with the latest version of the subject, and register nothing.",
    )
    normalizes: bool = setting(
        "normalize.schemas",
        default=False,
        text="The registry compares schemas without regard to order and white space.",
    )
    key_strategy: SubjectStrategy = setting(
        "key.subject.name.strategy",
        default=SubjectStrategy.TOPIC.value,
        choices=_STRATEGIES,
        convert=SubjectStrategy,
        text="What names the subject of keys; `topic`, `record` and `topic-record` are the same.",
    )
    value_strategy: SubjectStrategy = setting(
        "value.subject.name.strategy",
        default=SubjectStrategy.TOPIC.value,
        choices=_STRATEGIES,
        convert=SubjectStrategy,
        text="Likewise for values.",
    )

    def __repr__(self) -> str:
        return f"RegistryConfig({shown_fields(self)})"


REGISTRY_SETTINGS: Final = settings_of(RegistryConfig)


def parse_registry_config(given: Mapping[str, object]) -> RegistryConfig:
    """The settings of a registry from names and values.

    Raises:
        ConfigError: unknown names with similar known ones, bad values, and settings that contradict
            each other; all of them at once.
    """
    faults: list[str] = []
    texts = {_known_name(name): text for name, text in settings_texts(given).items()}
    for name in ("key.subject.name.strategy", "value.subject.name.strategy"):
        if name in texts:
            # Java names a class; only its last word says which.
            word = texts[name].rpartition(".")[2]
            texts[name] = SubjectStrategy[_SHORT[word]].value if word in _SHORT else word
    values = parse_settings(REGISTRY_SETTINGS, texts, hints=_HINTS, faults=faults)
    addresses = _addresses(str(values[_URL]), faults)
    if values["basic.auth.user.info"] and values["bearer.auth.token"]:
        faults.append("basic.auth.user.info, bearer.auth.token: give one of them")
    if values["ssl.key.location"] and not values["ssl.keystore.location"]:
        faults.append("ssl.key.location: give ssl.keystore.location too, the certificate")
    if faults:
        raise ConfigError(faults)
    return RegistryConfig(**field_values(RegistryConfig, values), addresses=addresses)


def _known_name(name: str) -> str:
    # In Confluent's own list this name has the prefix, so it stays.
    return name if name == _URL else name.removeprefix(_PREFIX)


def _addresses(text: str, faults: list[str]) -> tuple[RegistryAddress, ...]:
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            parts = urlsplit(each)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            faults.append(f"{_URL}: this is no URL: {error}")
            continue
        if parts.scheme == MOCK and parts.netloc:
            found.append(RegistryAddress(f"{MOCK}://{parts.netloc}", ""))
            continue
        if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
            # A URL at fault may have a password before the @.
            shown = each.rpartition("@")[2]
            faults.append(f"{_URL}: {shown!r} is no URL such as http://localhost:8081")
            continue
        # `hostname` is without the brackets of an IPv6 address.
        name = f"[{host}]" if ":" in host else host
        place = name if port is None else f"{name}:{port}"
        # Passwords with @ or : are percent-encoded in a URL, and plain in the header.
        user_info = unquote(parts.netloc.rpartition("@")[0])
        url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        found.append(RegistryAddress(url, user_info))
    if len(found) > 1 and any(each.url.startswith(f"{MOCK}:") for each in found):
        faults.append(f"{_URL}: {MOCK}:// names the only registry; give no others beside it")
    if not found and not faults:
        faults.append(f"{_URL}: give the URL of a registry, such as http://localhost:8081")
    return tuple(found)
