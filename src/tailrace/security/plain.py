"""PLAIN (RFC 4616), a broker's side: names and passwords of a broker's own settings.

    identity NUL name NUL password

The messages to the client are those of Kafka's PlainSaslServer.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from tailrace.security.exchange import Exchange, Granted, RefusedLoginError, client_error


class Plain:
    """The mechanism, for the users of one listener."""

    name: Final = "PLAIN"

    def __init__(self, users: Mapping[str, str]) -> None:
        """`users` has passwords by name."""
        self._secret = secrets.token_bytes(32)
        self._users = {name: self._digest(password) for name, password in users.items()}
        self._nobody = secrets.token_bytes(32)

    def exchange(self, first: bytes) -> Exchange:
        """A new login; see `ServerMechanism.exchange`."""
        yield from ()
        parts = first.decode(errors="replace").split("\0", 4)
        if len(parts) != 3:
            # Kafka counts no further than to four.
            raise client_error(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            )
        identity, user, password = parts
        if not user:
            raise client_error("Authentication failed: username not specified")
        if not password:
            raise client_error("Authentication failed: password not specified", user=user)
        # Digests, which are equally long: a comparison of texts would take as long as they are
        # equal. An unknown user is compared too.
        expected = self._users.get(user, self._nobody)
        if not hmac.compare_digest(self._digest(password), expected):
            raise RefusedLoginError(
                "the password is wrong" if user in self._users else "there is no such user",
                user=user,
                message="Authentication failed: Invalid username or password",
            )
        if identity and identity != user:
            raise client_error(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                user=user,
            )
        return Granted(user)

    def _digest(self, password: str) -> bytes:
        # With a secret of this process, so that its memory has no list of plain hashes.
        return hmac.digest(self._secret, password.encode(errors="replace"), hashlib.sha256)
