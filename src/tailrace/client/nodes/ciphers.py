"""TLS versions and cipher suites: from the names that Java and OpenSSL have for them to a context.

Not here: certificates; see `tls_context`.
"""

import difflib
import re
import ssl
from collections.abc import Sequence
from typing import Final

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The versions that clients of Kafka use; brokers refuse older ones too."""

TLS_1_3_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""The suites of TLS 1.3, under the one name that they have everywhere."""

_JAVA_NAME: Final = re.compile(
    r"(?:TLS|SSL)_([A-Z_]+)_WITH_([A-Z]+)_?(\w+?)_(GCM|CBC|POLY1305)_(SHA\d*)"
)
_NO_SUITE: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""A signal that Java lists among the suites."""


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2, from that of Java; other names as they are."""
    found = _JAVA_NAME.fullmatch(name)
    if found is None:
        return name
    exchange, cipher, size, mode, digest = found.groups()
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    match mode:
        case "POLY1305":
            parts += [f"{cipher}{size}", mode]
        case "GCM":
            parts += [f"{cipher}{size}", mode, digest]
        case _:
            parts += [f"{cipher}{size}", digest]
    return "-".join(parts)


def restrict(
    context: ssl.SSLContext, *, versions: Sequence[str], highest: str, suites: Sequence[str]
) -> list[str]:
    """Let a context use these versions and suites only; returns the faults of the settings.

    `versions` and `suites` are allowed ones, none for all; `highest` is the newest version, or TLS.
    """
    limit = VERSIONS.get(highest, ssl.TLSVersion.TLSv1_3)
    allowed = sorted(VERSIONS[each] for each in versions or VERSIONS if VERSIONS[each] <= limit)
    if not allowed:
        return [f"ssl.protocol: {highest} is older than all of ssl.enabled.protocols"]
    given = [each for each in suites if each != _NO_SUITE]
    newest = [each for each in given if each in TLS_1_3_SUITES]
    older = [openssl_name(each) for each in given if each not in TLS_1_3_SUITES]
    if given:
        faults = _suite_faults(given, newest, is_1_3_allowed=allowed[-1] == VERSIONS["TLSv1.3"])
        wanted = {VERSIONS["TLSv1.3"]} if newest else set()
        wanted |= {VERSIONS["TLSv1.2"]} if older else set()
        allowed = [each for each in allowed if each in wanted]
        if not faults and not allowed:
            faults.append("ssl.cipher.suites: none is of a version that ssl.enabled.protocols has")
        if faults:
            return faults
    context.minimum_version, context.maximum_version = allowed[0], allowed[-1]
    if older:
        context.set_ciphers(":".join(older))
    return []


def _suite_faults(
    given: Sequence[str], newest: Sequence[str], *, is_1_3_allowed: bool
) -> list[str]:
    everything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    everything.set_ciphers("ALL:@SECLEVEL=0")
    known = {each["name"] for each in everything.get_ciphers()} | set(TLS_1_3_SUITES)
    faults = []
    for name in given:
        if openssl_name(name) not in known:
            close = difflib.get_close_matches(openssl_name(name), known, n=1, cutoff=0.4)
            faults.append(
                f"ssl.cipher.suites: {name[:60]!r} is no suite of this machine's OpenSSL"
                + (f"; did you mean {close[0]}?" if close else "")
            )
    missing = [each for each in TLS_1_3_SUITES if each not in newest]
    if newest and missing and is_1_3_allowed:
        faults.append(
            "ssl.cipher.suites: Python takes all suites of TLS 1.3 or none; add "
            f"{', '.join(missing)}, or leave out {', '.join(newest)}"
        )
    return faults
