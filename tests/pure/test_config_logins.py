"""Logins of a profile by OAuth and by AWS's IAM: their keys, and what each client gets of them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from support.errors import raises
from support.security import Authority
from support.security.tokens import SECRET, Issuer, server_tls, token_endpoint

from eos.config.load import load_pipeline, load_profile
from eos.config.model import ProfileFile
from eos.config.secrets import require_hidden
from eos.errors import UsageError
from eos.kafka.acls import missing
from eos.kafka.client_options import security_options
from eos.kafka.settings import KafkaSettings
from eos.login.http_connection import TlsFiles
from eos.login.kerberos import TicketSource
from eos.login.msk_signer import MskSigner
from eos.login.token_endpoint import ClientCredentials
from eos.login.tokens import TokenFile, TokenFunction
from eos.plan.security import kafka_settings, naming_principal, principal, source_options

OAUTH = "protocol: SASL_SSL, mechanism: OAUTHBEARER, oauth: "
ENDPOINT = 'token_endpoint: "https://login/t", client_id: eos, client_secret: "${OAUTH}"'
GSSAPI = "protocol: SASL_PLAINTEXT, mechanism: GSSAPI, kerberos: "
REGISTRY = '{kafka: {bootstrap: "a:1"}, registry: {url: "https://r", '


def load(tmp_path: Path, text: str) -> ProfileFile:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return load_profile(str(path), tmp_path, {"OAUTH": SECRET, "K": "k"})


def kafka(tmp_path: Path, block: str) -> ProfileFile:
    return load(tmp_path, f"kafka: {{bootstrap: 'a:1', security: {{{block}}}}}\n")


def problem(tmp_path: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert SECRET not in str(caught.value)
    return str(caught.value)


def settings(profile: ProfileFile) -> KafkaSettings:
    return kafka_settings(("a:1",), profile.kafka.security)


def java(profile: ProfileFile) -> dict[str, str]:
    found = source_options(profile.kafka.security)
    assert "${env:" not in str(found) or "config.providers" in found
    return {name: value for name, value in found.items() if "config.providers" not in name}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def test_both_clients_ask_a_token_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: Issuer
) -> None:
    monkeypatch.setenv("OAUTH", SECRET)
    more = "scope: kafka read, extensions: {logicalCluster: lkc-1}"
    with token_endpoint(issuer) as endpoint:
        block = f"{OAUTH}{{{ENDPOINT.replace('https://login/t', endpoint.url)}, {more}}}"
        profile = kafka(tmp_path, block)
        found = java(profile)
    made = settings(profile)
    files = TlsFiles("kafka.security.oauth")
    source = ClientCredentials(endpoint.url, "eos", "${OAUTH}", "kafka read", files)
    assert made.token == source
    assert made.token_extensions == (("logicalCluster", "lkc-1"),)
    assert dict(made.security) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    for one in (profile, made, found):
        assert SECRET not in repr(one)
        assert SECRET.encode() not in pickle.dumps(one)
    assert hash(pickle.loads(pickle.dumps(made))) == hash(made)
    oauth = "org.apache.kafka.common.security.oauthbearer"
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required "
        'clientId="eos" clientSecret="${env:OAUTH}" scope="kafka read" '
        'extension_logicalCluster="lkc-1";',
    }


def test_the_authority_of_a_token_endpoint_is_for_both_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: Issuer
) -> None:
    monkeypatch.setenv("OAUTH", SECRET)
    ca = Authority.made(tmp_path / "ca")
    with token_endpoint(issuer, server_tls(ca.sign("server"))) as endpoint:
        block = ENDPOINT.replace("https://login/t", endpoint.url)
        profile = kafka(tmp_path, f"{OAUTH}{{{block}, ca: {ca.certificate}}}")
        login = java(profile)["sasl.jaas.config"]
    assert f'ssl.truststore.type="PEM" ssl.truststore.location="{ca.certificate}";' in login


def test_the_java_client_gets_other_tokens_from_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer: Issuer
) -> None:
    path = tmp_path / "token"
    path.write_text(issuer.token())
    (tmp_path / "own_tokens_of_java.py").write_text(f"def token(): return {issuer.token()!r}")
    monkeypatch.syspath_prepend(tmp_path)
    function = "own_tokens_of_java:token"
    for block, source in (
        (f"token_file: {path}", TokenFile(str(path), "kafka.security.oauth")),
        (f"callback: '{function}'", TokenFunction(function, "kafka.security.oauth")),
    ):
        profile = kafka(tmp_path, f"{OAUTH}{{{block}}}")
        assert settings(profile).token == source
        found = java(profile)
        assert found["sasl.oauthbearer.token.endpoint.url"].startswith("http://127.0.0.1:")
        assert 'clientSecret="${file:/' in found["sasl.jaas.config"]
        assert java(profile) == found
        own = java(kafka(tmp_path, f"{OAUTH}{{{block}, java_class: com.example.Tokens}}"))
        assert own["sasl.login.callback.handler.class"] == "com.example.Tokens"
        assert "sasl.oauthbearer.token.endpoint.url" not in own


def test_a_token_that_java_can_not_use_is_never_handed_to_it(tmp_path: Path) -> None:
    """Java would log it: its own message repeats what is no JWT."""
    (tmp_path / "token").write_text("opaque-secret")
    with raises("token_not_for_java") as caught:
        java(kafka(tmp_path, f"{OAUTH}{{token_file: {tmp_path}/token}}"))
    assert "opaque-secret" not in str(caught.value)
    assert "`java_class`" in caught.value.hint


def test_iam_of_aws(tmp_path: Path) -> None:
    profile = kafka(tmp_path, "protocol: SASL_SSL, mechanism: AWS_MSK_IAM, region: eu-west-1")
    made = settings(profile)
    assert made.token == MskSigner("eu-west-1")
    assert dict(made.security)["sasl_mechanism"] == "OAUTHBEARER"
    assert java(profile) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam."
        "IAMClientCallbackHandler",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }


def test_kerberos_by_keytab_and_by_ticket_cache(tmp_path: Path) -> None:
    block = "principal: eos/host@EOS.TEST, keytab: /etc/eos.keytab, service_name: queue"
    profile = kafka(tmp_path, f"{GSSAPI}{{{block}}}")
    made = settings(profile)
    assert made.tickets == TicketSource("eos/host@EOS.TEST", "/etc/eos.keytab", "queue")
    assert pickle.loads(pickle.dumps(made)) == made
    assert principal(profile.kafka.security) == "User:eos"
    assert java(profile) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "queue",
        "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
        'principal="eos/host@EOS.TEST" doNotPrompt="true" useKeyTab="true" storeKey="true" '
        'keyTab="/etc/eos.keytab";',
    }
    found = java(kafka(tmp_path, f"{GSSAPI}{{principal: eos@EOS.TEST}}"))
    assert 'useTicketCache="true"' in found["sasl.jaas.config"]
    assert "keyTab" not in found["sasl.jaas.config"]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ("protocol: SASL_SSL, mechanism: OAUTHBEARER", "expected `oauth` with"),
        ("protocol: SASL_SSL, mechanism: GSSAPI", "expected `kerberos` with"),
        (f"{GSSAPI}{{principal: eos}}", "expected a principal with its realm"),
        (f"{GSSAPI}{{principal: eos@A, keytab: a}}", "expected an absolute path"),
        (f"{GSSAPI}{{principal: eos@A, keytab: '/a\"b'}}", "without `:`, `$`, `{`, `}`, quotes"),
        (f"{GSSAPI}{{principal: eos@A, service_name: a/b}}", "expected a name of letters"),
        (f"{GSSAPI}{{principal: eos@A}}, user: b", "expected no `user` with `mechanism: GSSAPI`"),
        ("protocol: SASL_SSL, mechanism: PLAIN, kerberos: {principal: a@b}", "expected `user`"),
        (f"{OAUTH}{{}}", "expected one of `token_endpoint`, `token_file` and `callback`"),
        (f"{OAUTH}{{token_file: /a, callback: 'a:b'}}", "expected one of `token_endpoint`"),
        (f"{OAUTH}{{token_file: /a, client_id: b}}", "expected no `client_id` with `token_file`"),
        (f"{OAUTH}{{token_file: /a, extensions: {{auth: b}}}}", "expected no extension `auth`"),
        (f"{OAUTH}{{token_file: /a, extensions: {{a-b: c}}}}", "expected a name of letters"),
        (f"{OAUTH}{{token_file: a}}", "expected an absolute path"),
        (f"{OAUTH}{{callback: a.b}}", "expected a function as `package.module:function`"),
        (f"{OAUTH}{{{ENDPOINT}, java_class: a.B}}", "expected no `java_class` with"),
        (f"{OAUTH}{{token_endpoint: 'https://a', client_id: b}}", "expected `client_secret` with"),
        (f"{OAUTH}{{{ENDPOINT}}}".replace("https:", "http:"), "`http:` would send the secret"),
        (f"{OAUTH}{{{ENDPOINT}}}".replace("/t", "/t?q=1"), "expected the URL of a token endpoint"),
        (f"{OAUTH}{{{ENDPOINT}, scope: 'a\"b'}}", "expected scopes, separated by one space each"),
        (f"{OAUTH}{{{ENDPOINT}}}".replace("${OAUTH}", SECRET), "a profile contains neither"),
        (f"{OAUTH}{{token_file: /a}}, user: b", "expected no `user` with `mechanism: OAUTHBEARER`"),
        (f"{OAUTH}{{token_file: /a}}".replace("SASL_SSL", "SASL_PLAINTEXT"), "send the token"),
        ("protocol: SSL, oauth: {token_file: /a}", "expected no `oauth` with `protocol: SSL`"),
        ("protocol: SASL_SSL, mechanism: AWS_MSK_IAM", "expected `region` with"),
        ("protocol: SASL_SSL, mechanism: AWS_MSK_IAM, region: here", "expected a region of AWS"),
        (
            "protocol: SASL_SSL, mechanism: PLAIN, user: a, password: '${K}', region: eu-west-1",
            "expected no `region` with `mechanism: PLAIN`",
        ),
    ],
)
def test_a_login_that_does_not_fit_together(tmp_path: Path, block: str, text: str) -> None:
    assert text in problem(tmp_path, f"kafka: {{bootstrap: 'a:1', security: {{{block}}}}}\n")


@pytest.mark.parametrize(
    ("login", "text"),
    [
        ("token: '${K}', oauth: {token_file: /a}}}", "got `token` and `oauth`"),
        ("user: a, password: '${K}', token: '${K}'}}", "got `user` and `password` and `token`"),
        (f"token: {SECRET}}}}}", "a profile contains neither a secret"),
        ("key: /a}}", "expected `certificate` with `key`"),
        ("oauth: {token_file: /a, java_class: a.B}}}", "expected no `java_class`"),
        ("oauth: {token_file: /a, extensions: {a: b}}}}", "use `headers`"),
        ("headers: {Authorization: b}}}", "expected no header `Authorization`"),
        ("headers: {a b: c}}}", "expected the name of an HTTP header"),
    ],
)
def test_a_registry_login_that_does_not_fit_together(tmp_path: Path, login: str, text: str) -> None:
    assert text in problem(tmp_path, REGISTRY + login)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("registry: {url: 'https://admin:hunter2@registry:1'}\n", "`https://***@registry:1`"),
        ("registry: {url: 'https://a b/?token=hunter2'}\n", "`https://a b/?***`"),
        ("registry: {url: 'what? that'}\n", "`what? that`"),
        ("kafka:\n  security:\n    password: !hunter2 x\n", "got a tag; put quotes"),
    ],
)
def test_a_secret_where_none_may_be_is_not_shown(tmp_path: Path, text: str, shown: str) -> None:
    found = problem(tmp_path, text)
    assert shown in found
    assert "hunter2" not in found


@pytest.mark.parametrize("login", ["token: '${K}'", "oauth: {token_file: /a}", "certificate: /a"])
def test_a_registry_login_needs_tls(tmp_path: Path, login: str) -> None:
    text = f"{REGISTRY}{login}}}}}"
    load(tmp_path, text)
    assert "begins with `http" in problem(tmp_path, text.replace("https:", "http:"))


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        (f"kafka: {{bootstrap: 'a:1', security: {{{OAUTH}{{{ENDPOINT}}}}}}}", "client_secret"),
        ("registry: {url: 'https://r', token: '${OAUTH}'}", "registry.token"),
        ("registry: {url: 'https://r', oauth: {token_file: '/OAUTH'}}", "oauth.token_file"),
    ],
)
def test_a_secret_of_a_login_shows_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, owner: str
) -> None:
    monkeypatch.setenv("OAUTH", "topic")
    (tmp_path / "topic").write_text("topic")
    reference = "${OAUTH}" if "/OAUTH" not in text else f"${{file:{tmp_path}/topic}}"
    profile = load(tmp_path, text.replace("/OAUTH", f"{tmp_path}/topic"))
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"version: 1\nname: a\nsource: {{kafka: {{topic: '{reference}'}}}}\n"
        "sink: {kafka: {topic: out}}\n"
    )
    with pytest.raises(UsageError) as caught:
        require_hidden(load_pipeline(path), profile)
    assert f"{owner}` of profile" in str(caught.value)


def test_a_right_that_is_missing_names_where_the_principal_is_from(tmp_path: Path) -> None:
    profile = kafka(tmp_path, f"{OAUTH}{{token_file: /run/token}}")
    assert principal(profile.kafka.security) == ""
    right = missing("Produce", 29, "orders")
    assert right is not None
    with pytest.raises(UsageError) as caught, naming_principal(profile.kafka.security):
        raise UsageError("test", right.message, hint=right.grant)
    assert "PRINCIPAL is the token's claim `sub`" in caught.value.hint


def test_the_first_token_is_fetched_before_anything_connects(tmp_path: Path) -> None:
    profile = kafka(tmp_path, f"{OAUTH}{{token_file: {tmp_path}/token}}")
    with raises("token_file_unusable"):
        security_options(settings(profile))
    (tmp_path / "token").write_text("opaque")
    assert security_options(settings(profile))["sasl_oauth_token_provider"].token() == "opaque"
