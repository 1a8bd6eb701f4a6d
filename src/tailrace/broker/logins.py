"""`NodeLogins`: SASL on the listeners of a node, and its own logins to other nodes.

As in Kafka a node logs in to others with the JAAS entry of the listener by which they are reached:
`username` and `password` there are its own.
"""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from tailrace.cluster.metadata.image import ScramUser
from tailrace.runtime.system import Runtime
from tailrace.security.authenticator import ListenerLogins, LoginThreads
from tailrace.security.listener_logins import LoginServices, listener_logins
from tailrace.security.sasl_config import ListenerSaslConfig, MechanismConfig
from tailrace.security.scram import HASHES, ITERATIONS_MIN, ScramKeys

if TYPE_CHECKING:
    from tailrace.broker.security import ScramUsers
    from tailrace.client.nodes import Login
    from tailrace.protocol.metadata_records import UserScramCredentialRecord

_NUMBERS = {name: number for number, name in enumerate(HASHES, start=1)}
"""Kafka's numbers of the mechanisms of SCRAM."""

_LOOKED_AT_MAX = 100
"""Most credentials of which one is looked for, to learn how many iterations are usual."""


class NodeLogins:
    """The logins of one node, by listener."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._threads = LoginThreads(runtime.threads)

    def of_listener(
        self, name: str, config: ListenerSaslConfig, users: Callable[[], "ScramUsers"]
    ) -> ListenerLogins:
        """The logins of the clients of a listener.

        Raises:
            MissingExtraError: a package for a mechanism is not installed.
        """

        def find_scram(mechanism: str, user: str) -> ScramKeys | None:
            found = users().get(ScramUser(_NUMBERS[mechanism], user))
            return None if found is None else _keys(found)

        def usual_iterations(mechanism: str) -> int:
            known = islice(users().items(), _LOOKED_AT_MAX)
            number = _NUMBERS[mechanism]
            return next(
                (each.iterations for user, each in known if user.mechanism == number),
                ITERATIONS_MIN,
            )

        services = LoginServices(
            find_scram=find_scram,
            usual_iterations=usual_iterations,
            threads=self._threads,
            now=lambda: self._clock.now_ms() / 1000,
        )
        return listener_logins(name, config, services)


def own_login(found: MechanismConfig) -> "Login":
    """The login of a node to others by a mechanism.

    Raises:
        ConfigError: the settings of the mechanism are not those of a login.
    """
    from tailrace.client.config import parse_client_config

    settings = found.settings
    texts = {
        # Each request names its node, and so this address is not used.
        "bootstrap.servers": "localhost:1",
        # The listener's protocol counts for encryption; this is the login alone.
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": found.name,
        "sasl.jaas.config": found.client_jaas,
        "sasl.oauthbearer.token.endpoint.url": settings.token_endpoint_url,
        "sasl.oauthbearer.client.credentials.client.id": settings.client_id,
        "sasl.oauthbearer.client.credentials.client.secret": settings.client_secret,
        "sasl.oauthbearer.scope": settings.token_scope,
        "sasl.kerberos.service.name": settings.kerberos_service_name,
    }
    client = parse_client_config({name: text for name, text in texts.items() if text})
    login = client.open_security().login
    assert login is not None, "a client with a mechanism logs in"
    return login


def _keys(record: "UserScramCredentialRecord") -> ScramKeys:
    return ScramKeys(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
