"""`kafka_variables`: settings in environment variables, by the rule of Apache Kafka's image.

    KAFKA_LOG_RETENTION_MS=1000         log.retention.ms=1000
    KAFKA_A__B=1                        a_b=1
    KAFKA_A___B=1                       a-b=1

The rule is `KafkaDockerWrapper.getServerConfigsFromEnv`; that of listeners, and of the files of
certificates, is in the image's script `configure`. Unlike there a value is taken as it is: a
backslash is a backslash.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tailrace.errors import ConfigError

_START: Final = "KAFKA_"

_OF_THE_IMAGE: Final = frozenset({
    "KAFKA_GC_LOG_OPTS", "KAFKA_HEAP_OPTS", "KAFKA_JMX_HOSTNAME", "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_LOG4J_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL", "KAFKA_OPTS", "KAFKA_SSL_KEYSTORE_CREDENTIALS",
    "KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEY_CREDENTIALS", "KAFKA_SSL_TRUSTSTORE_CREDENTIALS",
    "KAFKA_SSL_TRUSTSTORE_FILENAME", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_VERSION",
})  # fmt: skip
"""Variables that are for Java and for the image's scripts."""

_OF_KUBERNETES: Final = re.compile(
    r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Addresses that Kubernetes puts into the environment of each pod beside a service "kafka"."""

SECRETS: Final = Path("/etc/kafka/secrets")
"""The directory of certificates and of files with their passwords in the image."""

_KEYSTORE: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
}
_TRUSTSTORE: Final = {
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
"""Variables that name a file there: a store, or one whose content is a password."""


class Variables(NamedTuple):
    """Settings of the environment."""

    settings: Mapping[str, str]
    """Texts by name."""
    sources: Mapping[str, str]
    """The variable of each setting."""
    passed_over: tuple[str, ...]
    """Variables that begin with KAFKA_ and are no settings."""

    def without(self, taken: Collection[str]) -> "Variables":
        """These, of which some that were passed over have an effect after all."""
        return self._replace(passed_over=tuple(e for e in self.passed_over if e not in taken))


def kafka_variables(environment: Mapping[str, str]) -> Variables:
    """The settings that an environment has."""
    settings, sources, passed_over = {}, {}, []
    for variable, text in sorted(environment.items()):
        if not variable.startswith(_START):
            continue
        if variable in _OF_THE_IMAGE or _OF_KUBERNETES.fullmatch(variable):
            passed_over.append(variable)
            continue
        name = variable.removeprefix(_START).lower().replace("_", ".")
        name = name.replace("...", "-").replace("..", "_")
        settings[name], sources[name] = text, variable
    return Variables(settings, sources, tuple(passed_over))


def with_stores(
    variables: Variables, environment: Mapping[str, str], *, secrets: Path = SECRETS
) -> Variables:
    """Variables with the settings of the files that the environment names below `secrets`.

    As in the image those of the keystore count if `KAFKA_ADVERTISED_LISTENERS` has a listener with
    encryption, those of the truststore if such a listener asks for certificates, and both over the
    setting itself. The image asks for all of them; here one that is missing may be the setting
    itself, or the certificate needs none.

    Raises:
        ConfigError: a file is not there or cannot be read; all of them.
    """
    if "SSL://" not in environment.get("KAFKA_ADVERTISED_LISTENERS", ""):
        return variables
    named = dict(_KEYSTORE)
    client_auth = environment.get("KAFKA_SSL_CLIENT_AUTH", "")
    if "required" in client_auth or "requested" in client_auth:
        named |= _TRUSTSTORE
    settings, sources, faults = dict(variables.settings), dict(variables.sources), []
    taken = [each for each in named if environment.get(each)]
    for variable in taken:
        path, name = secrets / environment[variable], named[variable]
        try:
            # As in a shell, without the ends of the last lines. A store is read with the others.
            content = path.read_bytes().decode(errors="replace").rstrip("\n")
        except OSError as error:
            itself = f"{_START}{name.upper().replace('.', '_')}"
            faults.append(
                f"{variable}: {path} cannot be read ({error.strerror}); mount it there, or give "
                f"{itself} instead"
            )
        else:
            settings[name] = content if name.endswith(".password") else str(path)
            sources[name] = variable
    if faults:
        raise ConfigError(faults)
    return Variables(settings, sources, variables.passed_over).without(taken)


def named_with(sources: Mapping[str, str], fault: str) -> str:
    """A fault of a setting, with the variable that it is from if it is from one."""
    source = sources.get(fault.partition(":")[0])
    return fault if source is None else f"{fault} (it is from the variable {source})"


def with_listeners(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with the `listeners` that the image derives from those that are advertised.

    It does so where none are given, so that a container is reached from outside.
    """
    advertised = settings.get("advertised.listeners", "")
    found = dict(settings)
    is_controller = settings.get("process.roles", "").strip() == "controller"
    if advertised and not is_controller and not settings.get("listeners"):
        found["listeners"] = re.sub(r"://[^:]*:", "://0.0.0.0:", advertised)
    return found
