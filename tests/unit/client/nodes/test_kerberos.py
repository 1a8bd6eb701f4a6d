"""GSSAPI, message by message, with a context that a test scripts; `tests/wire` has a real KDC."""

import sys

import pytest

from tailrace.client.nodes import AuthenticationError
from tailrace.client.nodes.kerberos import KerberosLogin
from tailrace.client.nodes.sasl import Blocking, Tokens
from tailrace.errors import ConfigError
from tailrace.protocol.fields import Buffer


class ScriptedContext:
    """A context that is complete after `rounds` tokens of the broker."""

    principal = b"alice@EXAMPLE.COM"

    def __init__(self, rounds: int) -> None:
        self.taken: list[bytes | None] = []
        self._rounds = rounds

    @property
    def complete(self) -> bool:
        """Whether the broker's last token was taken."""
        return len(self.taken) > self._rounds

    def step(self, token: bytes | None) -> bytes | None:
        """A numbered token, None with the last."""
        self.taken.append(token)
        return None if self.complete else b"ours%d" % len(self.taken)

    def unwrap(self, message: bytes) -> bytes:
        """The message behind its mark."""
        return message.removeprefix(b"wrapped:")

    def wrap(self, message: bytes) -> bytes:
        """The message behind a mark."""
        return b"wrapped:" + message


def login(context: ScriptedContext, hosts: list[str] | None = None) -> Tokens:
    """A login with that context; the hosts it is for are added to `hosts`."""

    def opened(_login: KerberosLogin, host: str) -> ScriptedContext:
        if hosts is not None:
            hosts.append(host)
        return context

    return KerberosLogin(service_name="kafka", open_context=opened).tokens("broker1")


def sent(tokens: Tokens, answer: Buffer | None) -> bytes:
    """The client's next token; its blocking work is done here."""
    step = next(tokens) if answer is None else tokens.send(answer)
    return tokens_after(tokens, step)


def tokens_after(tokens: Tokens, step: bytes | Blocking) -> bytes:
    """The token behind work that may block."""
    while isinstance(step, Blocking):
        assert step.subject == "Kerberos"
        step = tokens.send(step.run())
    return step


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_login_is_the_exchange_of_the_standard(rounds: int) -> None:
    """Tokens go until the context is complete; then the broker's layers are answered with none."""
    hosts: list[str] = []
    context = ScriptedContext(rounds)
    tokens = login(context, hosts)
    ours = [sent(tokens, None)]
    ours += [sent(tokens, b"theirs%d" % number) for number in range(1, rounds + 1)]
    assert ours == [*(b"ours%d" % number for number in range(1, rounds + 1)), b""]
    assert sent(tokens, b"wrapped:\x07\x00\xff\xff") == (
        b"wrapped:\x01\x00\x00\x00alice@EXAMPLE.COM"
    )
    with pytest.raises(StopIteration):
        tokens.send(b"")
    assert hosts == ["broker1"]


@pytest.mark.parametrize("layers", [b"", b"\x06\x00\xff\xff", b"\x01", b"\x01" * 5])
def test_a_broker_that_wants_a_layer_is_refused(layers: bytes) -> None:
    """Anything but an offer of no layer ends the login."""
    tokens = login(ScriptedContext(1))
    sent(tokens, None)
    sent(tokens, b"theirs")
    with pytest.raises(AuthenticationError, match="layer of protection"):
        tokens.send(b"wrapped:" + layers)


def test_a_missing_package_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the settings are refused in one sentence."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'tailrace\[gssapi\]'"):
        KerberosLogin(service_name="kafka")
