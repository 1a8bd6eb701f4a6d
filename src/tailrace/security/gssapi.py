"""GSSAPI: a broker's side of the login with Kerberos (RFC 4752), over the package gssapi.

    step ... step      the context, with the client's tokens
    wrap, unwrap       no layer of protection is offered: TLS is below, if it is wanted

Not here: how a principal becomes a user's name; see `kerberos_names`.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, Protocol

from tailrace.errors import MissingExtraError
from tailrace.security.exchange import Exchange, Granted, RefusedLoginError, Work
from tailrace.security.kerberos_names import NameRules

_NO_LAYER: Final = bytes((1, 0, 0, 0))
"""No layer of protection, and so no buffer for protected messages."""


class AcceptedContext(Protocol):
    """A security context of the broker's side, as in the package gssapi."""

    @property
    def complete(self) -> bool:
        """Whether both sides know each other."""
        ...

    @property
    def principal(self) -> str:
        """The client's principal; known when the context is complete."""
        ...

    def step(self, token: bytes) -> bytes:
        """Take the client's token; returns the next one for it, empty if there is none."""
        ...

    def wrap(self, message: bytes) -> bytes:
        """Sign a message."""
        ...

    def unwrap(self, message: bytes) -> bytes:
        """Check and unpack a message of the client."""
        ...


class Gssapi:
    """The mechanism, for the service principal of one listener."""

    name: Final = "GSSAPI"

    def __init__(
        self,
        *,
        principal: str,
        keytab: str,
        names: NameRules,
        open_context: "Callable[[], AcceptedContext] | None" = None,
    ) -> None:
        """`open_context` makes a context; None: with the package gssapi.

        Raises:
            MissingExtraError: the package is not installed.
        """
        if open_context is None and find_spec("gssapi") is None:
            raise MissingExtraError("GSSAPI", ["gssapi"], extra="gssapi")
        self._principal = principal
        self._keytab = keytab
        self._names = names
        self._open = open_context or self._library_context

    def exchange(self, first: bytes) -> Exchange:
        """A new login; see `ServerMechanism.exchange`."""
        context: AcceptedContext = yield Work(self._open)
        token, answer, is_complete = first, b"", False
        while not is_complete:
            # The replay cache is on a disk.
            answer = yield Work(_step(context, token))
            is_complete = context.complete
            # To a last token of ours the client answers once more, with an empty one.
            if answer or not is_complete:
                token = bytes((yield answer))
        offer: bytes = yield Work(lambda: context.wrap(_NO_LAYER))
        chosen = bytes((yield offer))
        plain: bytes = yield Work(lambda: context.unwrap(chosen))
        principal = context.principal
        if len(plain) < 4 or plain[0] != _NO_LAYER[0]:
            raise RefusedLoginError(
                "the client asks for a layer of protection of Kerberos, which Kafka does not use",
                user=principal,
            )
        name = self._names.short_name(principal)
        if name is None:
            raise RefusedLoginError(
                "no rule of sasl.kerberos.principal.to.local.rules is for this principal",
                user=principal,
            )
        return Granted(name)

    def _library_context(self) -> AcceptedContext:
        # The package needs a library of the system.
        import gssapi

        try:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(
                name=name,
                # The mechanism is Kerberos alone (RFC 4752). By SPNEGO the client would choose
                # among all that the system has, NTLM too, and each has names of its own.
                mechs=[gssapi.MechType.kerberos],
                usage="accept",
                store={"keytab": self._keytab} if self._keytab else None,
            )
            return _LibraryContext(gssapi.SecurityContext(creds=credentials, usage="accept"))
        except gssapi.exceptions.GSSError as error:
            raise RefusedLoginError(
                f"the broker's own credentials: {_one_line(error)}; check principal and keyTab of "
                "Krb5LoginModule"
            ) from error


def realm_of(principal: str) -> str:
    """The realm of a principal; that of the system (krb5.conf) if it names none, as in Java.

    Empty if the system has none either, or no package to ask it.
    """
    if "@" in principal or find_spec("gssapi") is None:
        return principal.partition("@")[2]
    import gssapi

    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def _step(context: AcceptedContext, token: bytes) -> Callable[[], bytes]:
    return lambda: context.step(token)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _LibraryContext:
    """`AcceptedContext` over that of the package, with our errors."""

    def __init__(self, context: object) -> None:
        import gssapi

        self._context = context
        self._error = gssapi.exceptions.GSSError

    @property
    def complete(self) -> bool:
        return bool(self._call("complete"))

    @property
    def principal(self) -> str:
        return str(self._call("initiator_name"))

    def step(self, token: bytes) -> bytes:
        found = self._call("step", token)
        return found if isinstance(found, bytes) else b""

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._call("wrap", message, False).message)  # noqa: FBT003 - not encrypted

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._call("unwrap", message).message)

    def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - the package has no types
        try:
            found = getattr(self._context, name)
            return found(*arguments) if arguments else found
        except self._error as error:
            raise RefusedLoginError(f"Kerberos: {_one_line(error)}") from error
