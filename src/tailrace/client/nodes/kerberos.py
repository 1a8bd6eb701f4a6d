"""GSSAPI: the login with Kerberos (RFC 4752), over the package gssapi.

    step ... step      the context, with the broker's tokens; each may ask a KDC: `Blocking`
    unwrap, wrap       no layer of protection is chosen: TLS is below, if it is wanted

Not here: getting tickets at a terminal. `kinit` does, or a keytab from which they are fetched.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, Protocol

from tailrace.client.errors import AuthenticationError, DisconnectedError
from tailrace.client.nodes.sasl import Blocking, Tokens
from tailrace.errors import ConfigError
from tailrace.values import dataclass

_NO_LAYER: Final = 1
"""The bit of a broker that needs no layer of protection."""

_UNREACHABLE: Final = 2529638812
"""KRB5_KDC_UNREACH: no KDC of the realm answers."""


class Context(Protocol):
    """A security context of the client's side, as in the package gssapi."""

    @property
    def complete(self) -> bool:
        """Whether both sides know each other."""
        ...

    @property
    def principal(self) -> bytes:
        """Our own name."""
        ...

    def step(self, token: bytes | None) -> bytes | None:
        """Take the broker's token, None at first; returns the next one of ours, if there is one."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Check and unpack a message of the broker."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Sign a message of ours."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """The login with a Kerberos ticket."""

    service_name: str
    """The first part of the brokers' principals, usually kafka."""
    principal: str = ""
    """Our own principal; empty: that of the ticket cache or keytab."""
    keytab: str = ""
    """File with our key; empty: tickets of the ticket cache."""
    open_context: "Callable[[KerberosLogin, str], Context] | None" = None
    """Makes a context for a host; None: with the package gssapi."""

    def __post_init__(self) -> None:
        """Check that there is a library.

        Raises:
            ConfigError: the package is not installed.
        """
        if self.open_context is None and find_spec("gssapi") is None:
            fault = (
                "sasl.mechanism: GSSAPI needs the package gssapi: pip install 'tailrace[gssapi]' "
                "(with the header files of Kerberos, such as Debian's libkrb5-dev)"
            )
            raise ConfigError([fault])

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return "GSSAPI"

    @property
    def advice(self) -> str:
        """The settings to check when a broker refuses the login."""
        return "check sasl.kerberos.service.name, the ticket (klist) and the clocks"

    def tokens(self, host: str) -> Tokens:
        """A new login; see `Login.tokens`."""
        opened: list[Context] = []

        def begin() -> bytes:
            opened.append((self.open_context or _library_context)(self, host))
            return opened[0].step(None) or b""

        # A step may ask a KDC over the network.
        token = bytes((yield Blocking(begin, "Kerberos")))
        (context,) = opened
        while True:
            answer = bytes((yield token))
            if context.complete:
                break
            token = bytes((yield Blocking(_step(context, answer), "Kerberos")))
        layers = context.unwrap(answer)
        # Four bytes: the layers that the broker has, and the size of its buffer (RFC 4752, 3.3).
        if len(layers) != 4 or not layers[0] & _NO_LAYER:
            raise AuthenticationError(
                "the broker asks for a layer of protection of Kerberos, which Kafka does not use"
            )
        yield context.wrap(bytes((_NO_LAYER, 0, 0, 0)) + context.principal)


def _step(context: Context, answer: bytes) -> Callable[[], bytes]:
    return lambda: context.step(answer) or b""


def _library_context(login: KerberosLogin, host: str) -> Context:
    """A context of the package gssapi, with our ticket or keytab.

    Raises:
        AuthenticationError: there is no ticket, and none can be had with the keytab.
    """
    # The package needs a library of the system; most clients have neither.
    import gssapi

    try:
        service = gssapi.Name(f"{login.service_name}@{host}", gssapi.NameType.hostbased_service)
        name = store = None
        if login.principal:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        if login.keytab:
            # In memory, and by principal and keytab: the ticket cache of the user stays as it is.
            cache = f"MEMORY:{login.principal}{login.keytab}"
            store = {"client_keytab": login.keytab, "ccache": cache}
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        context = gssapi.SecurityContext(name=service, creds=credentials, usage="initiate")
    except gssapi.exceptions.GSSError as error:
        raise _explained(error, login) from error
    return _LibraryContext(context, login)


def _explained(error: Exception, login: KerberosLogin) -> DisconnectedError | AuthenticationError:
    text = " ".join(str(error).split())
    if getattr(error, "min_code", 0) == _UNREACHABLE:
        return DisconnectedError(f"Kerberos: {text}")
    remedy = (
        f"check that {login.keytab} has the key of sasl.kerberos.principal"
        if login.keytab
        else "get a ticket with kinit, or give sasl.kerberos.keytab"
    )
    return AuthenticationError(f"Kerberos: {text}; {remedy}, and check sasl.kerberos.service.name")


class _LibraryContext:
    """`Context` over that of the package, with our errors."""

    def __init__(self, context: object, login: KerberosLogin) -> None:
        import gssapi

        self._context = context
        self._login = login
        self._error = gssapi.exceptions.GSSError

    @property
    def complete(self) -> bool:
        return bool(self._call("complete"))

    @property
    def principal(self) -> bytes:
        return str(self._call("initiator_name")).encode()

    def step(self, token: bytes | None) -> bytes | None:
        found = self._call("step", token)
        return found if isinstance(found, bytes) else None

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._call("unwrap", message).message)

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._call("wrap", message, False).message)  # noqa: FBT003 - not encrypted

    def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - the package has no types
        try:
            found = getattr(self._context, name)
            return found(*arguments) if arguments else found
        except self._error as error:
            raise _explained(error, self._login) from error
