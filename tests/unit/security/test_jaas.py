"""`sasl.jaas.config`: what is read, and what is refused without showing a password."""

import re

import pytest

from tailrace.security.jaas import JAAS_CHARACTERS_MAX, parse_jaas
from tailrace.security.sasl_config import SaslConfig

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} REQUIRED username=u password='p w';", {"username": "u", "password": "p w"}),
        (f'{PLAIN}\n  required\n  username = "u"\n  password="a;b=c" ;\n',
         {"username": "u", "password": "a;b=c"}),
        (f'// ours\n{PLAIN} /* the \n module */ required a="//x" b="/*";', {"a": "//x", "b": "/*"}),
        (rf'{PLAIN} required a="q\"q" b="\\" c="\101\n" d="\q" e="\9";',
         {"a": 'q"q', "b": "\\", "c": "A\n", "d": "q", "e": "9"}),
        (f"{PLAIN} sufficient;", {}),
        (f'{PLAIN} required keyTab="/etc/k.keytab" n=12;', {"keyTab": "/etc/k.keytab", "n": "12"}),
    ],
)  # fmt: skip
def test_an_entry_is_read_as_java_reads_it(text: str, options: dict[str, str]) -> None:
    """Quotes, escapes, comments and line ends are Java's."""
    assert parse_jaas(text) == ("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no name of a login module"),
        (";", "no name of a login module"),
        (PLAIN, "there is no 'required'"),
        (f'{PLAIN} username="u";', "has to be 'required'"),
        (f'{PLAIN} required password="SECRET"', "has to end with ';'"),
        (f'{PLAIN} required password="SECRET;', "has no end"),
        (f"{PLAIN} required password=;", "option 1 has to be NAME=VALUE"),
        (f"{PLAIN} required password SECRET;", "option 1 has to be NAME=VALUE"),
        (f'{PLAIN} required a=b ="SECRET";', "option 2 has to be NAME=VALUE"),
        (f'{PLAIN} required a="SECRET" a="SECRET";', "'a' is given twice"),
        (f"{PLAIN} required; {PLAIN} required;", "one login module"),
        (f"{PLAIN} required /* password=SECRET", "the comment at character"),
        ("x" * (JAAS_CHARACTERS_MAX + 1), "characters"),
    ],
)
def test_other_texts_are_refused_without_their_values(text: str, said: str) -> None:
    """The message says what was expected where, and never has a value in it."""
    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        parse_jaas(text)
    assert "SECRET" not in str(raised.value)


def test_what_is_shown_of_an_entry_has_no_values() -> None:
    """A traceback or a log line with an entry tells which options it has, and no password."""
    entry = parse_jaas(f'{PLAIN} required username="SECRET" password="SECRET";')
    assert "SECRET" not in repr(entry)
    assert "password" in repr(entry)
    assert "SECRET" not in repr(SaslConfig(client_secret="SECRET"))
