"""A broker's side of a SASL mechanism: a generator that gets client tokens and yields answers.

    exchange = mechanism.exchange(first)     # the client's first token
    answer = next(exchange)                  # send it, and give `exchange.send` the next token
    ...                                      # until it returns `Granted`, or raises

It mirrors the client's side, `client.nodes.sasl`. A mechanism that has to wait for something else
than the client yields `Work`, and is sent what that returns.

Not here: the requests that carry the tokens; see `authenticator`.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from tailrace.errors import FatalError
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Work for another thread: it takes long, or waits for a network."""

    run: Callable[[], object]
    """Does the work; raises a RefusedLoginError if the client may not log in."""


class Granted(NamedTuple):
    """The result of a login."""

    name: str
    """The user's name."""
    answer: bytes = b""
    """The last token for the client."""
    expires_at: float | None = None
    """When what the client has shown expires, in Unix seconds; None: never."""


Exchange = Generator[bytes | Work, Any, Granted]
"""Yields answers to the client's tokens, and is sent the next ones; or yields work, and is sent its
result."""


class ServerMechanism(Protocol):
    """A mechanism of a listener."""

    @property
    def name(self) -> str:
        """The name in SaslHandshake."""
        ...

    def exchange(self, first: bytes) -> Exchange:
        """A new login, which begins with this token.

        Raises:
            RefusedLoginError: from the generator.
        """
        ...


class RefusedLoginError(FatalError):
    """A client may not log in."""

    def __init__(self, reason: str, *, user: str = "", message: str | None = None) -> None:
        self.reason = reason
        """The whole reason, for the log of the broker."""
        self.user = user
        """The name that the client has given, as far as it is known."""
        self.message = message
        """The text for the client; None: only that its credentials are not valid."""
        super().__init__(reason)


def client_error(message: str, *, user: str = "") -> RefusedLoginError:
    """A refusal whose reason may be known to the client too, in Kafka's words."""
    return RefusedLoginError(message, user=user, message=message)
