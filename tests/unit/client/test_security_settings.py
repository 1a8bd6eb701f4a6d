"""Settings of encryption and login: manners of names, contradictions, and what comes of them."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace import OAuthToken
from tailrace.client.config import ClientConfig, parse_client_config
from tailrace.client.nodes import Credentials, Login
from tailrace.client.nodes.oauth import OAuthLogin
from tailrace.client.nodes.oidc import ClientCredentials
from tailrace.client.producer.config import parse_producer_config
from tailrace.errors import ConfigError
from tests.unit.security.certificates import BROKER, BROKER_KEY

SERVERS = {"bootstrap.servers": "b:1"}
SASL = SERVERS | {"security.protocol": "SASL_SSL"}
OAUTH = SASL | {"sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "https://idp.example.com/token"
JAAS = "org.apache.kafka.common.security"


def faults(given: Mapping[str, object], more: dict[str, object] | None = None) -> list[str]:
    """Return the faults of settings."""
    with pytest.raises(ConfigError) as raised:
        parse_client_config(given, more)
    return list(raised.value.faults)


def login(config: ClientConfig) -> Login:
    """The login that connections get."""
    found = config.open_security().login
    assert found is not None
    return found


def jaas(module: str, **options: str) -> str:
    """An entry of sasl.jaas.config."""
    pairs = "".join(f' {name}="{value}"' for name, value in options.items())
    return f"{JAAS}.{module} required{pairs};"


def test_settings_come_in_a_mapping_and_as_keywords_in_both_manners() -> None:
    """Dots and underscores, a mapping and keywords may be mixed; the same value twice is fine."""
    config = parse_producer_config(
        {"bootstrap.servers": "b:1", "linger_ms": 7, "acks": "all"},
        {"linger_ms": "7", "compression_type": "zstd", "client_id": None},
    )
    assert (config.linger_ms, config.compression_type.label) == (7, "zstd")


def test_contradictions_are_faults_among_the_others() -> None:
    """A setting with two values is one fault, in one list with an unknown name and a bad value."""
    with pytest.raises(ConfigError) as raised:
        parse_producer_config(
            SERVERS | {"linger.ms": 5, "linger_ms": 6, "acks": "most"}, {"linger_ms": 7, "lnger": 1}
        )
    found = raised.value.faults
    assert len(found) == 3
    assert "linger.ms: it is given twice, with different values" in found
    secret = faults(SERVERS | {"sasl.password": "open"}, {"sasl_password": "sesame"})
    assert secret == ["sasl.password: it is given twice, with different values"]


def test_milliseconds_of_linger_may_have_a_fraction() -> None:
    """linger.ms is half a millisecond if that is said."""
    assert parse_producer_config(SERVERS, {"linger_ms": 0.5}).linger_ms == 0.5


def test_levels_have_kafkas_names() -> None:
    """Each codec's own setting counts where that codec is used; the general one still does."""
    given = SERVERS | {"compression.zstd.level": 7, "compression.gzip.level": 2}
    assert parse_producer_config(given, {"compression_type": "zstd"}).compression_level == 7
    assert parse_producer_config(given, {"compression_type": "gzip"}).compression_level == 2
    assert parse_producer_config(given, {"compression_type": "lz4"}).compression_level is None
    with pytest.raises(ConfigError, match=r"compression\.gzip\.level: '10' is not allowed"):
        parse_producer_config(SERVERS | {"compression.gzip.level": 10})
    with pytest.raises(ConfigError, match=r"compression\.zstd\.level has another value"):
        parse_producer_config(given, {"compression_type": "zstd", "compression_level": 3})


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [
        ("plain.PlainLoginModule", "PLAIN"),
        ("scram.ScramLoginModule", "SCRAM-SHA-256"),
        ("scram.ScramLoginModule", "SCRAM-SHA-512"),
    ],
)
def test_a_password_may_come_from_jaas(module: str, mechanism: str) -> None:
    """Java's setting gives the same login as sasl.username and sasl.password."""
    text = jaas(module, username="alice", password='s;\\"e')
    config = parse_client_config(SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": text})
    assert login(config) == Credentials(mechanism=mechanism, username="alice", password='s;"e')
    assert "s;" not in repr(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"sasl.jaas.config": jaas("scram.ScramLoginModule", username="u", password="SECRET")},
            "sasl.jaas.config has ScramLoginModule; set it to SCRAM-SHA-256 or SCRAM-SHA-512",
        ),
        (
            {
                "sasl.jaas.config": jaas("plain.PlainLoginModule", username="u", password="SECRET"),
                "sasl.password": "SECRET2",
            },
            "sasl.password: sasl.jaas.config has another value; give one of them",
        ),
        (
            {"sasl.jaas.config": jaas("plain.PlainLoginModule", usr="SECRET")},
            "sasl.jaas.config: PlainLoginModule has no option 'usr' here",
        ),
        (
            {"sasl.jaas.config": "a.b.LdapLoginModule required p=SECRET;"},
            "sasl.jaas.config: LdapLoginModule is not read; PlainLoginModule",
        ),
        (
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"},
            "by sasl.oauth.token",
        ),
        (
            {"sasl.jaas.config": jaas("plain.PlainLoginModule")[:-1]},
            "sasl.jaas.config: the entry has to end with ';'",
        ),
    ],
)
def test_a_jaas_text_that_does_not_fit_is_told(given: dict[str, object], said: str) -> None:
    """One fault says what to change, and shows no password."""
    (fault,) = faults(SASL | given)
    assert said in fault
    assert "SECRET" not in fault


def test_a_token_function_is_a_setting() -> None:
    """A function is taken in a mapping or as a keyword, and its tokens are used."""
    for given, more in (
        (OAUTH | {"sasl.oauth.token": lambda: "abc"}, {}),
        (OAUTH, {"sasl_oauth_token": lambda: OAuthToken(value="abc")}),
    ):
        found = login(parse_client_config(given, more))
        assert isinstance(found, OAuthLogin)
        assert found.source.fetch().value == "abc"


def test_the_function_of_a_signer_is_three_lines() -> None:
    """The lines of docs/security.md for Amazon MSK, with a stand-in for its signer."""

    def generate_auth_token(region: str) -> tuple[str, int]:
        return f"signed-for-{region}", 20_000_000_000_000

    def token() -> OAuthToken:
        value, expiry_ms = generate_auth_token("eu-west-1")
        return OAuthToken(value=value, expires_at=expiry_ms / 1000)

    found = login(parse_client_config(OAUTH, {"sasl_oauth_token": token}))
    assert isinstance(found, OAuthLogin)
    assert found.source.fetch().value == "signed-for-eu-west-1"
    assert found.source.fresh() is not None


@pytest.mark.parametrize(
    "given",
    [
        {
            "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "SECRET",
            "sasl.oauthbearer.scope": "a b",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool",
        },
        {
            "sasl_oauthbearer_token_endpoint_url": ENDPOINT,
            "sasl_oauthbearer_client_id": "me",
            "sasl_oauthbearer_client_secret": "SECRET",
            "sasl_oauthbearer_scope": "a b",
            "sasl_oauthbearer_extensions": ["logicalCluster=lkc-1", "identityPoolId=pool"],
        },
        {
            "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
            "sasl.jaas.config": jaas(
                "oauthbearer.OAuthBearerLoginModule",
                clientId="me",
                clientSecret="SECRET",
                scope="a b",
                extension_logicalCluster="lkc-1",
                extension_identityPoolId="pool",
            ),
        },
    ],
    ids=["Kafka's", "librdkafka's", "jaas"],
)
def test_client_credentials_have_kafkas_names_and_those_of_librdkafka(
    given: dict[str, object],
) -> None:
    """The same endpoint, client, scope and extensions come of all three manners."""
    config = parse_client_config(OAUTH | given)
    found = login(config)
    assert isinstance(found, OAuthLogin)
    fetch = found.source._fetch
    asked = getattr(fetch, "__self__", None)
    assert isinstance(asked, ClientCredentials)
    assert (asked.url, asked.client_id, asked.client_secret) == (ENDPOINT, "me", "SECRET")
    assert asked.scope == "a b"
    assert dict(asked.extensions) == {"logicalCluster": "lkc-1", "identityPoolId": "pool"}
    assert "SECRET" not in repr(config) + repr(asked)


def test_an_unsecured_token_comes_from_jaas() -> None:
    """Kafka's options for development make a token with those claims."""
    text = jaas(
        "oauthbearer.OAuthBearerLoginModule",
        unsecuredLoginStringClaim_sub="alice",
        unsecuredLoginListClaim_scope="|a|b",
        unsecuredLoginNumberClaim_n="1.5",
        unsecuredLoginLifetimeSeconds="60",
        unsecuredLoginExtension_traceId="7",
    )
    found = login(parse_client_config(OAUTH | {"sasl.jaas.config": text}))
    assert isinstance(found, OAuthLogin)
    token = found.source.fetch()
    assert token.value.count(".") == 2
    assert token.value.endswith(".")
    assert dict(token.extensions) == {"traceId": "7"}


OIDC: dict[str, object] = {
    "sasl.oauthbearer.token.endpoint.url": ENDPOINT,
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "SECRET",
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "gets its token from one source, and there is none"),
        (OIDC | {"sasl.oauth.token": str}, "there are sasl.oauth.token and sasl.oauthbearer"),
        ({"sasl.oauth.token": "abc"}, "sasl.oauth.token: it has to be a function"),
        (OIDC | {"sasl.oauthbearer.client.id": ""}, "client.id: must be given"),
        (
            OIDC | {"sasl.oauthbearer.client.credentials.client.id": "you"},
            "sasl.oauthbearer.client.id has another value",
        ),
        (OIDC | {"sasl.oauthbearer.token.endpoint.url": "idp/token"}, "is no URL"),
        (
            OIDC | {"sasl.oauthbearer.token.endpoint.url": "http://idp.example.com/"},
            "the client secret would travel in the clear",
        ),
        (OIDC | {"sasl.oauthbearer.token.endpoint.url": "https://[::1/"}, "is no URL"),
        (OIDC | {"sasl.oauthbearer.token.endpoint.url": "https://a:b@c/"}, "has a user name"),
        (OIDC | {"sasl.oauthbearer.extensions": "auth=x"}, "'auth' is no name"),
        (OIDC | {"sasl.oauthbearer.extensions": "trace"}, "the value of trace"),
        (
            {
                "sasl.jaas.config": jaas(
                    "oauthbearer.OAuthBearerLoginModule", unsecuredLoginLifetimeSeconds="x",
                    unsecuredLoginStringClaim_sub="a",
                )
            },
            "unsecuredLoginLifetimeSeconds has to be a number",
        ),
        (
            {
                "sasl.jaas.config": jaas(
                    "oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_name="a"
                )
            },
            "unsecuredLoginStringClaim_sub must be given",
        ),
        (
            OIDC | {
                "sasl.jaas.config": jaas(
                    "oauthbearer.OAuthBearerLoginModule", **{"ssl.trustore.location": "SECRET"}
                )
            },
            "sasl.jaas.config: ssl.trustore.location: ",
        ),
        (
            OIDC | {
                "https.ca.location": "ca.pem",
                "sasl.jaas.config": jaas(
                    "oauthbearer.OAuthBearerLoginModule", **{"ssl.truststore.location": "ca.pem"}
                ),
            },
            "https.ca.location: sasl.jaas.config has options ssl... for the same",
        ),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.kerberos.service.name: must be given"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "'AWS_MSK_IAM' is not one of"),
    ],
)  # fmt: skip
def test_a_login_that_is_not_whole_is_told(given: dict[str, object], said: str) -> None:
    """One fault names the setting that is missing or wrong, and shows no secret."""
    (fault,) = faults(OAUTH | given)
    assert said in fault
    assert "SECRET" not in fault


def test_a_source_of_tokens_needs_its_mechanism() -> None:
    """With a token function and no mechanism, the fault is the mechanism, not the user's name."""
    (fault,) = faults(SASL, {"sasl_oauth_token": lambda: "abc"})
    assert fault == "sasl.mechanism: set it to OAUTHBEARER for sasl.oauth.token"


def test_authorities_of_the_token_endpoint_are_told_by_their_own_name(tmp_path: Path) -> None:
    """A file that is not there is a fault of https.ca.location."""
    config = parse_client_config(OAUTH | OIDC | {"https.ca.location": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match=r"^https\.ca\.location: "):
        config.open_security()


def test_authorities_of_the_token_endpoint_may_come_from_jaas(tmp_path: Path) -> None:
    """Options ssl... of OAuthBearerLoginModule are for the endpoint, and not for brokers."""
    store = tmp_path / "ca.pem"

    def of(path: Path) -> ClientConfig:
        options = {"ssl.truststore.location": str(path), "ssl.truststore.type": "PEM"}
        text = jaas("oauthbearer.OAuthBearerLoginModule", **options)
        return parse_client_config(OAUTH | OIDC | {"sasl.jaas.config": text})

    store.write_text(BROKER)
    config = of(store)
    assert config.security.tls.ssl_truststore_location == ""
    found = login(config)
    assert isinstance(found, OAuthLogin)
    asked = getattr(found.source._fetch, "__self__", None)
    assert isinstance(asked, ClientCredentials)
    assert asked.context is not None
    assert len(asked.context.get_ca_certs()) == 1
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config: ssl\.truststore\.location: "):
        of(tmp_path / "none").open_security()


@pytest.mark.parametrize("algorithm", ["none", ""])
def test_the_check_of_the_host_may_be_left_out(algorithm: str) -> None:
    """The text none of librdkafka and the empty text of Kafka mean the same."""
    for given, is_checked in ((algorithm, False), ("https", True), ("HTTPS", True)):
        config = parse_client_config(
            SERVERS
            | {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": given,
                "ssl.truststore.certificates": BROKER,
                "ssl.keystore.certificate.chain": BROKER,
                "ssl.keystore.key": BROKER_KEY,
            }
        )
        context = config.open_security().tls
        assert isinstance(context, ssl.SSLContext)
        assert context.check_hostname is is_checked
        assert BROKER_KEY[40:80] not in repr(config)
