"""`KeyUpdates`: updates of keys without an end, which no library lets a client of TLS 1.3 send.

The client has sent no record of its own after its handshake.
"""

import hmac
import struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_TAG_BYTES = 16
"""The tag of AES-GCM."""


class KeyUpdates:
    """Encrypted KeyUpdate messages (RFC 8446, 4.6.3), and data between them."""

    def __init__(self, key_log: str) -> None:
        """`key_log` is what `SSLContext.keylog_filename` has of this connection alone."""
        [line] = [each for each in key_log.splitlines() if "CLIENT_TRAFFIC_SECRET_0" in each]
        self._secret = bytes.fromhex(line.rpartition(" ")[2])
        self._number = 0
        # The suites of TLS 1.3 with AES-GCM: a hash of 48 bytes goes with keys of 256 bits.
        is_long = len(self._secret) == 48
        self._digest, self._key_bytes = ("sha384", 32) if is_long else ("sha256", 16)

    def take(self, count: int) -> bytes:
        """The next so many, of which each asks for one in return; the keys of each are new."""
        return b"".join(self._update() for _ in range(count))

    def data(self, content: bytes) -> bytes:
        """A record with this data."""
        return self._sealed(content + bytes((23,)))

    def _update(self) -> bytes:
        # update_requested, in a record of the handshake
        record = self._sealed(bytes((24, 0, 0, 1, 1, 22)))
        self._secret = self._expand(b"traffic upd", len(self._secret))
        self._number = 0
        return record

    def _sealed(self, content: bytes) -> bytes:
        head = struct.pack(">BHH", 23, 0x0303, len(content) + _TAG_BYTES)
        key, nonce = self._expand(b"key", self._key_bytes), self._expand(b"iv", 12)
        nonce = (int.from_bytes(nonce, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + AESGCM(key).encrypt(nonce, content, head)

    def _expand(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label, of one block."""
        name = b"tls13 " + label
        info = struct.pack(">HB", size, len(name)) + name + b"\0\1"
        return hmac.digest(self._secret, info, self._digest)[:size]
