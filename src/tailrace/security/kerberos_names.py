"""Names of users from Kerberos principals: `sasl.kerberos.principal.to.local.rules`.

    DEFAULT                                    of our realm: alice@REALM, alice/host@REALM -> alice
    RULE:[2:$1@$0](.*@EXAMPLE.COM)s/@.*//L     two components; the name; a condition; a change

`$0` is the realm, `$1` and `$2` the components; the first rule that fits counts. The grammar is
that of Kafka's KerberosShortNamer.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_PRINCIPAL: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>\d+):(?P<form>[^\]]*)\](?:\((?P<condition>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<letters>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d+)")
_JAVA_GROUP: Final = re.compile(r"\\(.)|\$(\d)|\\", re.DOTALL)


class _Rule(NamedTuple):
    component_count: int
    form: str
    condition: re.Pattern[str] | None
    old: re.Pattern[str] | None
    new: str
    """With Python's groups."""
    is_repeated: bool
    letters: str


class NameRules:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[str] = ("DEFAULT",), *, realm: str) -> None:
        """`realm` is the broker's own, for DEFAULT.

        Raises:
            ValueError: a rule has another form; the message says which.
        """
        self._rules = [None if each == "DEFAULT" else _parsed(each) for each in rules]
        self._realm = realm

    def short_name(self, principal: str) -> str | None:
        """The user's name; None: no rule fits, or what it makes has a / or @."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            # A name without a realm is one already, as in Kafka.
            return None if "@" in principal or "/" in principal else principal or None
        service, host, realm = found.groups()
        parts = [realm, service] if host is None else [realm, service, host]
        for rule in self._rules:
            name = self._applied(rule, parts)
            if name is not None:
                return None if not name or "/" in name or "@" in name else name
        return None

    def _applied(self, rule: _Rule | None, parts: Sequence[str]) -> str | None:
        if rule is None:
            return parts[1] if parts[0] == self._realm else None
        if rule.component_count != len(parts) - 1:
            return None
        name = _PARAMETER.sub(lambda each: parts[int(each[1])], rule.form)
        if rule.condition is not None and not rule.condition.fullmatch(name):
            return None
        if rule.old is not None:
            name = rule.old.sub(rule.new, name, count=0 if rule.is_repeated else 1)
        match rule.letters:
            case "L":
                return name.lower()
            case "U":
                return name.upper()
        return name


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is neither DEFAULT nor RULE:[COUNT:FORM](REGEX)s/OLD/NEW/")
    count, form = int(found["count"]), found["form"]
    if any(int(each) > count for each in _PARAMETER.findall(form)):
        raise ValueError(f"{text[:80]!r} has a parameter above ${count}")
    try:
        condition = None if found["condition"] is None else re.compile(found["condition"])
        old = None if found["old"] is None else re.compile(found["old"])
        new = _JAVA_GROUP.sub(_group, found["new"] or "")
        if old is not None:
            # Its groups are checked now, and not by a login.
            re.sub(f"(?:{old.pattern})|", new, "")
    except (re.error, IndexError) as error:
        raise ValueError(f"{text[:80]!r}: {error}") from None
    return _Rule(count, form, condition, old, new, found["all"] is not None, found["letters"] or "")


def _group(found: re.Match[str]) -> str:
    if found[2] is not None:
        return rf"\g<{found[2]}>"
    return (found[1] or "\\").replace("\\", r"\\")
