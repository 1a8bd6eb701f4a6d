r"""`PrincipalRules`: principals from the names of certificates (`ssl.principal.mapping.rules`).

    RULE:^CN=(.*?),OU=Users.*$/$1/L, RULE:^CN=([^,]+).*$/$1@outside/, DEFAULT

The first rule whose pattern matches the whole name counts, as in Kafka's `SslPrincipalMapper`: its
matches in the name are replaced, and `$1` stands for a group. DEFAULT is the name itself. `\/` is a
slash.

Patterns are those of RE2, whose time does not explode for a name that a client has chosen. What
RE2 cannot say, such as look-ahead, is refused. A name with a control character fits no pattern:
Java and RE2 do not agree on what ends a line.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import re2

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
    r"|)\s*(?:,|$)"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)

_CASES: Final[dict[str, Callable[[str], str]]] = {"L": str.lower, "U": str.upper, "": str}


class _Rule(NamedTuple):
    pattern: "re2._Regexp"
    replacement: tuple[str | int, ...]
    """Texts, and the numbers of groups."""
    case: Callable[[str], str]

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        found, position, rest = [], 0, 0
        # As Java's `replaceAll`: an empty match may follow another one.
        while position <= len(name) and (match := self.pattern.search(name, position)):
            found.append(name[rest : match.start()])
            found += (
                each if isinstance(each, str) else match.group(each) or ""
                for each in self.replacement
            )
            rest = match.end()
            position = rest + (match.end() == match.start())
        return self.case("".join([*found, name[rest:]]))


class PrincipalRules:
    """The rules of one listener, in their order."""

    def __init__(self, text: str) -> None:
        """The rules of a setting.

        Raises:
            ValueError: it has something else than rules, a pattern is not RE2's, or a replacement
                refers to a group that there cannot be.
        """
        self._rules: list[_Rule | None] = []
        position, text = 0, text.strip()
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ValueError(
                    f"{text[position : position + 60]!r} is not DEFAULT, nor "
                    "RULE:pattern/replacement/ with L, U or nothing after it"
                )
            position = match.end()
            if match["default"]:
                self._rules.append(None)
            elif match["pattern"] is not None:
                pattern = _compiled(match["pattern"])
                replacement = _parsed(match["replacement"], group_count=pattern.groups)
                self._rules.append(_Rule(pattern, replacement, _CASES[match["case"]]))

    def name_of(self, subject: str) -> str | None:
        """The name of a principal for the subject of a certificate; None: no rule applies."""
        for rule in self._rules:
            if rule is None:
                return subject
            if not _CONTROL.search(subject):
                name = rule.apply(subject)
                if name is not None:
                    return name
        return None


def _compiled(pattern: str) -> "re2._Regexp":
    import re2  # Only listeners with rules need it.

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(
            f"the pattern {pattern!r} is not one of RE2: "
            f"{reason.decode() if isinstance(reason, bytes) else reason}"
        ) from None


def _parsed(replacement: str, *, group_count: int) -> tuple[str | int, ...]:
    r"""The texts and group numbers of a replacement.

    `$12` is group 1 and a 2 if there are no 12 groups, and text if there is no group 1 either.
    """
    parts: list[str | int] = []
    position = 0
    for match in _REFERENCE.finditer(replacement):
        parts.append(replacement[position : match.start()])
        position = match.end()
        escaped, digits, lone = match.groups()
        if escaped is not None:
            parts.append(escaped)
        elif lone is not None:
            raise ValueError(
                rf"{lone} in the replacement {replacement!r} needs a number, or a \ before it"
            )
        else:
            parts += _referred(digits, replacement, group_count=group_count)
    return (*parts, replacement[position:])


def _referred(digits: str, replacement: str, *, group_count: int) -> list[str | int]:
    size = 1
    while size < len(digits) and int(digits[: size + 1]) <= group_count:
        size += 1
    number = int(digits[:size])
    if number <= group_count:
        return [number, digits[size:]]
    if not group_count:
        raise ValueError(
            f"the replacement {replacement!r} refers to group {number}, and its pattern has none"
        )
    return [f"${digits}"]
