"""`sasl.jaas.config`: one login module of Java's and its options, as clients and brokers have it.

    MODULE FLAG OPTION=VALUE ... ;

Values may be quoted, with Java's escapes; comments are Java's. Modules are known by the last part
of their name, so shaded packages work too.

Not here: what the options mean (`client.logins`, `listener_logins`).
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

JAAS_CHARACTERS_MAX: Final = 256 * 1024
"""Longest `sasl.jaas.config` that is parsed."""

# As Java's StreamTokenizer, which Kafka's JaasConfig uses: both quotes, and words without any.
_TOKENS: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<comment>/\*)
      | (?P<mark>[=;])
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<word>[^\s"'=;]+)""",
    re.VERBOSE | re.DOTALL,
)
# Octal escapes have three digits only if the first is 0 to 3, as in Java.
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class JaasEntry(NamedTuple):
    """A login module and its options."""

    module: str
    """The last part of the name of the class."""
    options: dict[str, str]
    """Values by their names."""

    def __repr__(self) -> str:
        # Passwords are values.
        return f"JaasEntry({self.module}, options={[*self.options]})"


class _Token(NamedTuple):
    is_mark: bool
    text: str


def parse_jaas(text: str) -> JaasEntry:
    """The only entry of the text.

    No message has a value in it, since passwords are values.

    Raises:
        ValueError: it is not of this form; the message says what was expected where.
    """
    # A setting may come from a file that somebody else wrote.
    if len(text) > JAAS_CHARACTERS_MAX:
        raise ValueError(f"it has {len(text)} characters; {JAAS_CHARACTERS_MAX} are read")
    tokens = _tokens(text)
    module = _word(tokens, "name of a login module, such as PlainLoginModule")
    flag = _word(tokens, "'required' after the login module")
    # All mean the same where there is one module.
    if flag.lower() not in _FLAGS:
        raise ValueError(f"after {_last_part(module)} has to be 'required'")
    options: dict[str, str] = {}
    while True:
        token = next(tokens, None)
        if token is None:
            raise ValueError("the entry has to end with ';'")
        if token == (True, ";"):
            break
        name = token.text[:40]
        equals, value = next(tokens, None), next(tokens, None)
        if token.is_mark or equals != (True, "=") or value is None or value.is_mark:
            raise ValueError(f"option {len(options) + 1} has to be NAME=VALUE, quoted if need be")
        # Java takes the last one; with passwords a mistake should not depend on the order.
        if token.text in options:
            raise ValueError(f"the option {name!r} is given twice")
        options[token.text] = value.text
    # Kafka's JaasContext refuses several modules in `sasl.jaas.config` too.
    if next(tokens, None) is not None:
        raise ValueError("there is one login module, and there is more after the first ';'")
    return JaasEntry(_last_part(module), options)


def _last_part(module: str) -> str:
    return module.rpartition(".")[2][:80]


def _word(tokens: Iterator[_Token], wanted: str) -> str:
    token = next(tokens, None)
    if token is None or token.is_mark or not token.text:
        raise ValueError(f"there is no {wanted}")
    return token.text


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKENS.match(text, position)
        # All other characters begin a word, so only a quote can be what does not match.
        if found is None:
            raise ValueError(f"the quote at character {position + 1} has no end")
        kind, content = str(found.lastgroup), str(found[str(found.lastgroup)])
        position = found.end()
        match kind:
            case "space":
                pass
            case "comment":
                # Not in the pattern: a comment without an end would take the pattern quadratic
                # time.
                end = text.find("*/", position)
                if end < 0:
                    raise ValueError(f"the comment at character {position - 1} has no end")
                position = end + 2
            case "mark" | "word":
                yield _Token(kind == "mark", content)
            case _:
                yield _Token(False, _ESCAPE.sub(_unescaped, content))  # noqa: FBT003


def _unescaped(found: re.Match[str]) -> str:
    character = found[1]
    return (
        chr(int(character, 8))
        if character.isdigit() and character < "8"
        else _ESCAPED.get(character, character)
    )
