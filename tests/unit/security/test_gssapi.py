"""A broker's side of GSSAPI, with a context that a test scripts, and names of principals."""

import re
from collections.abc import Sequence

import pytest

from tailrace.errors import MissingExtraError
from tailrace.security import gssapi
from tailrace.security.exchange import RefusedLoginError
from tailrace.security.gssapi import Gssapi
from tailrace.security.kerberos_names import NameRules
from tests.unit.security.exchanges import Running, granted

NAMES = NameRules(realm="EXAMPLE.COM")


class ScriptedContext:
    """A context that answers with these tokens, and is complete after the last."""

    def __init__(self, *answers: bytes, principal: str = "alice@EXAMPLE.COM") -> None:
        self.principal = principal
        self.taken: list[bytes] = []
        self._answers = list(answers)

    @property
    def complete(self) -> bool:
        """Whether there are no more answers."""
        return not self._answers

    def step(self, token: bytes) -> bytes:
        """The next answer."""
        self.taken.append(token)
        return self._answers.pop(0)

    def wrap(self, message: bytes) -> bytes:
        """The message with a mark in front."""
        return b"wrapped:" + message

    def unwrap(self, message: bytes) -> bytes:
        """The message without its mark."""
        if not message.startswith(b"wrapped:"):
            raise RefusedLoginError("Kerberos: the message is not signed")
        return message.removeprefix(b"wrapped:")


def server(context: ScriptedContext, names: NameRules = NAMES) -> Gssapi:
    """A broker with this context."""
    return Gssapi(
        principal="kafka/b@EXAMPLE.COM", keytab="", names=names, open_context=lambda: context
    )


OFFER = b"wrapped:" + bytes((1, 0, 0, 0))
CHOICE = OFFER + b"alice@EXAMPLE.COM"


def test_a_login_in_one_round() -> None:
    """After its answer the broker waits for an empty token, and offers no layer of protection."""
    context = ScriptedContext(b"ours")
    running = Running(server(context).exchange(b"theirs"))
    assert running.take() == b"ours"
    assert running.take(b"") == OFFER
    assert granted_name(running) == "alice"
    assert context.taken == [b"theirs"]


def granted_name(running: Running) -> str:
    """The name of a login whose client chooses no layer."""
    found = running.take(CHOICE)
    assert not isinstance(found, bytes)
    return found.name


def test_a_login_in_two_rounds() -> None:
    """A context that needs more tokens gets them."""
    running = Running(server(ScriptedContext(b"one", b"two")).exchange(b"a"))
    assert running.take() == b"one"
    assert running.take(b"b") == b"two"
    assert running.take(b"") == OFFER
    assert granted_name(running) == "alice"


def test_a_context_without_an_answer_is_followed_by_the_offer() -> None:
    """A broker without a token of its own makes the offer at once."""
    running = Running(server(ScriptedContext(b"")).exchange(b"a"))
    assert running.take() == OFFER


@pytest.mark.parametrize("chosen", [b"wrapped:", b"wrapped:\x02\0\0\0", b"wrapped:\1", b"x"])
def test_another_layer_is_refused(chosen: bytes) -> None:
    """A client that asks for protection by Kerberos, or signs nothing, is refused."""
    with pytest.raises(RefusedLoginError):
        granted(server(ScriptedContext(b"")).exchange(b"a"), chosen)


def test_a_principal_without_a_rule_is_refused() -> None:
    """A principal of another realm is nobody here by the default rule."""
    context = ScriptedContext(b"", principal="alice@OTHER.COM")
    with pytest.raises(RefusedLoginError, match="no rule") as refused:
        granted(server(context).exchange(b"a"), CHOICE)
    assert refused.value.user == "alice@OTHER.COM"


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the setting is refused with what to install."""
    monkeypatch.setattr(gssapi, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"tailrace\[gssapi\]"):
        Gssapi(principal="kafka/b@R", keytab="", names=NAMES)


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@REALM", "alice"), (["DEFAULT"], "alice/host@REALM", "alice"),
        (["DEFAULT"], "alice@OTHER", None), (["DEFAULT"], "alice", "alice"),
        (["DEFAULT"], "a/b/c@REALM", None), (["DEFAULT"], "", None), (["DEFAULT"], "@REALM", None),
        ([r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g"], "App.service-name@REALM", "service-name"),
        ([r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g"], "App.service/host@REALM", "service"),
        ([r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"], "user/host@REALM", "user"),
        ([r"RULE:[1:$1]/L"], "User@REALM", "user"), ([r"RULE:[2:$1]/U"], "user/h@REALM", "USER"),
        ([r"RULE:[1:$1]s/x/y/g/L"], "XxAx@REALM", "xyay"), ([r"RULE:[1:$1]s/x/y/"], "xx@R", "yx"),
        ([r"RULE:[2:$1;$2](^.*;admin$)s/;admin$//"], "bob/admin@R", "bob"),
        ([r"RULE:[2:$1;$2](^.*;admin$)s/;admin$//"], "bob/user@R", None),
        ([r"RULE:[1:$1@$0]"], "bob@R", None), ([r"RULE:[1:$0-$1]"], "bob@R", "R-bob"),
        ([r"RULE:[1:$1](.*)s/(b)/<$1>\$/"], "bob@R", "<b>$ob"),
    ],
)  # fmt: skip
def test_principals_become_names(rules: Sequence[str], principal: str, name: str | None) -> None:
    """The first rule that fits makes the name; a name with a slash or an at sign is none."""
    assert NameRules(rules, realm="REALM").short_name(principal) == name


@pytest.mark.parametrize(
    "rule",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "rule:[1:$1]", "rule:[1:$1]/L/U",
        "RULE:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]s/a/b", "RULE:[:$1]", "RULE:[1:$2]",
        "RULE:[1:$1](*)", "RULE:[1:$1]s/(a)/$2/", "RULE:[1:$1]s/[/x/", "",
    ],
)  # fmt: skip
def test_rules_that_are_refused(rule: str) -> None:
    """A rule of another form is refused, and named."""
    with pytest.raises(ValueError, match=re.escape(repr(rule))):
        NameRules([rule], realm="REALM")
