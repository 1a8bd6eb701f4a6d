"""Settings: parsed once, all faults together; and the texts they come from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tailrace.config import (
    Setting,
    Value,
    describe_settings,
    parse_assignments,
    parse_settings,
    properties,
    read_properties,
    settings_texts,
)
from tailrace.config.settings import SUGGESTIONS_MAX, is_secret_name
from tailrace.errors import ConfigError

DECLARED = (
    Setting(name="segment.bytes", default=100, low=10, high=200, text="Size."),
    Setting(name="ratio", default=0.5, low=0, high=1, text="Share."),
    Setting(name="enable", default=False, text="Whether."),
    Setting(name="policy", default=("a",), choices=("a", "b"), text="Which."),
    Setting(name="kind", default="x", choices=("x", "y"), text="What."),
    Setting(name="path", default="", text="Where.", is_stored_only=True),
)


def test_what_is_not_given_has_its_default() -> None:
    """Every declared setting is there."""
    assert parse_settings(DECLARED, {}) == {
        "segment.bytes": 100, "ratio": 0.5, "enable": False, "policy": ("a",), "kind": "x",
        "path": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " 10 ", 10), ("segment.bytes", "200", 200), ("ratio", "1", 1.0),
        ("enable", "TRUE", True), ("policy", "b, a", ("b", "a")), ("policy", "", ()),
        ("kind", "y", "y"), ("path", "/a b", "/a b"),
    ],
)  # fmt: skip
def test_text_becomes_a_value_and_back(name: str, text: str, value: Value) -> None:
    """Spaces around it do not count; `format` is the way back."""
    setting = next(each for each in DECLARED if each.name == name)
    assert parse_settings(DECLARED, {name: text})[name] == value
    assert setting.parse(setting.format(value)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "9"), ("segment.bytes", "201"), ("segment.bytes", "1_0"),
        ("segment.bytes", "x"), ("segment.bytes", "12.0"), ("segment.bytes", "9" * 5000),
        ("ratio", "nan"), ("ratio", "inf"), ("ratio", "-0.1"), ("enable", "yes"),
        ("policy", "a,c"), ("kind", "z"),
    ],
)  # fmt: skip
def test_a_bad_value_is_a_sentence_with_its_name(name: str, text: str) -> None:
    """A value of a wrong type or out of range is refused in a sentence with the setting's name."""
    with pytest.raises(ConfigError) as caught:
        parse_settings(DECLARED, {name: text})
    [fault] = caught.value.faults
    assert fault.startswith(f"{name}: ")
    assert len(fault) < 6000


def test_all_faults_come_together_and_unknown_names_with_a_suggestion() -> None:
    """One start is enough to know everything that is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse_settings(DECLARED, {"segment.byte": "5", "ratio": "x", "zzz": "1"})
    assert caught.value.faults == [
        "segment.byte: no such setting; did you mean segment.bytes?",
        "ratio: 'x' is not a number",
        "zzz: no such setting",
    ]


def test_only_the_first_unknown_names_get_a_suggestion() -> None:
    """A client chooses how many names it sends, and each search takes its time."""
    given = {f"segment.byte{number}": "5" for number in range(SUGGESTIONS_MAX + 1)}
    with pytest.raises(ConfigError) as caught:
        parse_settings(DECLARED, given)
    suggested = ["did you mean" in fault for fault in caught.value.faults]
    assert suggested == [True] * SUGGESTIONS_MAX + [False]


def test_a_name_that_is_far_too_long_gets_no_suggestion() -> None:
    """The search takes longer for a longer name, and it is not a mistyped one."""
    with pytest.raises(ConfigError) as caught:
        parse_settings((replace(DECLARED[0], name="a" * 70),), {"a" * 69: "1"})
    assert "did you mean" not in caught.value.faults[0]


def test_faults_can_be_collected() -> None:
    """With a list for faults nothing is raised, and a bad value is replaced by the default."""
    faults = ["before"]
    values = parse_settings(DECLARED, {"segment.bytes": "5", "ratio": "1", "zz": ""}, faults=faults)
    assert (values["segment.bytes"], values["ratio"]) == (100, 1.0)
    assert faults == [
        "before",
        "segment.bytes: 5 is out of range (10 to 200)",
        "zz: no such setting",
    ]


def test_the_reference_has_a_line_for_each_setting() -> None:
    """With default, range, and a note where it has no effect."""
    text = describe_settings(DECLARED)
    assert "| `segment.bytes` | 100 | 10 to 200 | Size. |" in text
    assert "| `path` | (none) |  | Where. *(kept and reported; no effect yet)* |" in text


def test_a_properties_file_is_read_as_java_does() -> None:
    """Comments, both separators, continued lines, spaces; the last of two wins."""
    text = "# comment\n! too\n\n a = 1 \nb:2\nc=x\\\n   y\nurl=a=b:c\nempty=\nalone\na=3\nlast=z\\"
    assert read_properties(text) == {
        "a": "3", "b": "2", "c": "xy", "url": "a=b:c", "empty": "", "alone": "", "last": "z",
    }  # fmt: skip


def test_escapes_of_a_properties_file_are_those_of_java() -> None:
    """A backslash hides what would end a name, and two of them continue no line."""
    text = "a\\:b\\=c=1\nname value\np=C\\:\\\\data\\\\\nt=x\\ty\\u00e4\n  \\\n#x=1\nlast=1\\ "
    assert read_properties(text) == {
        "a:b=c": "1", "name": "value", "p": "C:\\data\\", "t": "x\tyä", "last": "1",
    }  # fmt: skip


def test_halves_of_a_character_are_joined() -> None:
    """One alone is no character: it would fail only where it is printed."""
    assert read_properties("a=\\ud83d\\ude00\nb=\\ud83dx") == {"a": "\U0001f600", "b": "\ufffdx"}


def test_a_setting_of_a_properties_file_has_its_line() -> None:
    """The first of those that it is on."""
    found = properties("# x\r\na=1\r\n\r\nb=\\\r\n 2\rc=3")
    assert [(each.name, each.value, each.line) for each in found] == [
        ("a", "1", 2), ("b", "2", 4), ("c", "3", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "secret",
    [
        Setting(name="a", default="", choices=("x",), text="", is_secret=True),
        Setting(name="a", default=(), choices=("x",), text="", is_secret=True),
        Setting(name="a", default=False, text="", is_secret=True),
        Setting(name="a", default=0, text="", is_secret=True),
        Setting(
            name="a", default="", text="", is_secret=True,
            is_allowed=lambda value: not value, rule_text="empty",
        ),
    ],
)  # fmt: skip
def test_an_error_has_no_secret(secret: Setting) -> None:
    """A value that is refused may be a password with a typing error."""
    with pytest.raises(ConfigError, match=r"^a: \*\*\* is not") as raised:
        parse_settings([secret], {"a": "hunter2"})
    assert "hunter2" not in str(raised.value)


def test_names_tell_of_secrets() -> None:
    """Names that are mistyped, of one listener or of another release, too."""
    for name in (
        "listener.name.x.plain.sasl.jaas.config", "ssl.KEY.PASSWORD", "password.encoder.secret",
        "ssl.keystore.keys",
    ):  # fmt: skip
        assert is_secret_name(name), name
    assert not is_secret_name("sasl.oauthbearer.token.endpoint.url")


def test_words_are_name_and_value() -> None:
    """Every word that is not NAME=VALUE is reported, all in one error."""
    assert parse_assignments(["a=1", " b = x=y "]) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError) as caught:
        parse_assignments(["a", "b=1", "c"])
    assert caught.value.faults == ["'a' is not NAME=VALUE", "'c' is not NAME=VALUE"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"), (True, "true"), (0.5, "0.5"), ("x", "x"), (["a", 1], "a,1"), (Path("a"), "a"),
        (np.int64(7), "7"),
    ],
)  # fmt: skip
def test_values_of_python_become_texts(value: object, text: str) -> None:
    """Numbers, booleans, paths and lists are written as a properties file has them."""
    assert settings_texts({"a.b": value}) == {"a.b": text}


def test_names_with_underscores_are_dotted_ones() -> None:
    """Keyword arguments go over the mapping, and None leaves a setting to its default."""
    assert settings_texts({"a.b": 1, "c": 2}, {"a_b": 3, "d": None}) == {"a.b": "3", "c": "2"}


def test_a_listeners_name_keeps_its_underscores() -> None:
    """The prefix of a listener has its name as it is, such as that of SASL_SSL."""
    name = "listener.name.sasl_ssl.connections.max.reauth.ms"
    assert settings_texts({name: 1}) == {name: "1"}


def test_a_setting_of_no_type_that_settings_have_is_named() -> None:
    """All of them are told: the name, what came, and what is wanted."""
    with pytest.raises(ConfigError) as raised:
        settings_texts({"client.id": b"x", 1: 2}, {"setings": {"a": 1}})
    wanted = "a setting is a str, a number, a bool, or a list of these"
    assert raised.value.faults == [
        f"client.id is a bytes; {wanted}; decode() makes a str of it",
        "1 is an int; a name of a setting is a str",
        f"setings is a dict; {wanted}; a mapping of settings is the argument settings",
    ]


def test_settings_that_are_no_mapping_are_told() -> None:
    """An address alone is not taken for settings."""
    with pytest.raises(TypeError, match=r"settings is a str; .* a mapping of names to values"):
        settings_texts("localhost:9092")
