"""The security block: what fits together, and that a secret is a reference which never prints."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from support.errors import raises

from eos.config.load import load_pipeline, load_profile
from eos.config.model import ProfileFile
from eos.config.secrets import require_hidden
from eos.config.security import Security
from eos.config.variables import says_secret
from eos.errors import UsageError
from eos.plan.security import kafka_settings, principal, source_options
from eos.secret import reveal

ROOT = Path(__file__).parents[2]
SECRET = "Hunter2-planted"
LOGIN = "protocol: SASL_SSL, mechanism: SCRAM-SHA-512, user: eos"


def load(tmp_path: Path, block: str, **environ: str) -> ProfileFile:
    path = tmp_path / "a.yaml"
    path.write_text(f"kafka:\n  bootstrap: a:1\n  security: {{{block}}}\n")
    return load_profile(str(path), tmp_path, environ)


def security(tmp_path: Path, block: str, **environ: str) -> Security:
    found = load(tmp_path, block, **environ).kafka.security
    assert found is not None
    return found


def problem(tmp_path: Path, block: str, **environ: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, block, **environ)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.fields)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["variable", "file"])
def test_a_secret_stays_where_it_is(tmp_path, kind, monkeypatch):
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv("KAFKA", SECRET)
    reference = "${KAFKA}" if kind == "variable" else f"${{file:{tmp_path}/secret}}"
    profile = load(tmp_path, f'{LOGIN}, password: "{reference}"', KAFKA=SECRET)
    found = profile.kafka.security
    settings = kafka_settings(("a:1",), found)
    everything = [profile, found, settings, source_options(found), profile.model_dump()]
    for one in everything:
        assert SECRET not in repr(one)
        assert SECRET.encode() not in pickle.dumps(one)
    assert SECRET not in profile.model_dump_json()
    assert reveal(dict(settings.security)["sasl_plain_password"]) == SECRET


def test_both_clients_are_told_the_same(tmp_path):
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----")
    found = security(
        tmp_path,
        f'{LOGIN}, password: "${{KAFKA}}", ca: /etc/ca.pem, certificate: /etc/crt.pem,'
        f" key: {tmp_path}/key",
        KAFKA=SECRET,
    )
    assert dict(kafka_settings(("a:1",), found).security) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "eos",
        "sasl_plain_password": "${KAFKA}",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_certfile": "/etc/crt.pem",
        "ssl_keyfile": f"{tmp_path}/key",
    }
    options = dict(source_options(found))
    providers = {name: options.pop(name) for name in list(options) if "providers" in name}
    assert providers["config.providers"] == "file,env"
    assert options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="eos" password="${env:KAFKA}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "${file:/etc:crt.pem}",
        "ssl.keystore.key": f"${{file:{tmp_path}:key}}",
    }


def test_without_a_block_nothing_is_told():
    assert kafka_settings(("a:1",), None).security == ()
    assert source_options(None) == {}
    assert principal(None) == "User:ANONYMOUS"


def test_who_we_are_is_the_user_or_the_certificates_subject(tmp_path):
    login = security(tmp_path, f"{LOGIN}, password: '${{KAFKA}}'", KAFKA=SECRET)
    assert principal(login) == "User:eos"
    assert principal(Security(protocol="SSL", certificate="/a.pem")) == ""
    assert principal(Security(protocol="SSL", ca="/a.pem")) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    "written",
    [SECRET, f"a${{KAFKA}}{SECRET}", f"${{KAFKA:-{SECRET}}}", f"[{SECRET}]", "123456", "$${KAFKA}"],
)
def test_a_secret_in_the_profile_itself_is_refused_and_not_repeated(tmp_path, written):
    text = written if written[0] == "[" else f'"{written}"'
    text = written if written.isdigit() else text
    told = problem(tmp_path, f"{LOGIN}, password: {text}", KAFKA=SECRET)
    assert "a profile contains neither a secret" in told
    assert "a.yaml:3:" in told


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("", "a secret that is not empty"),
        (f"{SECRET}\n", "one line without a line break"),
        (f'{SECRET}"', "without double quotes and backslashes"),
        (f"{SECRET}\\", "without double quotes and backslashes"),
    ],
)
def test_what_java_would_not_take_is_told_at_once(tmp_path, secret, told):
    (tmp_path / "secret").write_text(secret)
    for reference in ("${KAFKA}", f"${{file:{tmp_path}/secret}}"):
        found = problem(tmp_path, f'{LOGIN}, password: "{reference}"', KAFKA=secret)
        assert told in found
        assert reference in found


def test_a_secret_that_is_not_there_is_told_with_its_place(tmp_path):
    assert "`KAFKA`, which is not set" in problem(tmp_path, f'{LOGIN}, password: "${{KAFKA}}"')
    told = problem(tmp_path, f'{LOGIN}, password: "${{file:{tmp_path}/nowhere}}"')
    assert f"the file {tmp_path}/nowhere can't be read: No such file" in told


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("protocol: SASL_SSL, user: a, password: '${K}'", "expected `mechanism` with"),
        ("protocol: SASL_SSL, mechanism: PLAIN, user: a", "expected `password` with"),
        ("protocol: SSL, user: a", "expected no `user` with `protocol: SSL`"),
        ("protocol: SSL, key: /a", "expected `certificate` with `key`"),
        ("protocol: SSL, ca: a.pem", "expected an absolute path"),
        ("protocol: SSL, ca: '/a:b'", "expected an absolute path"),
        ("protocol: PLAINTEXT", "expected SSL, SASL_SSL or SASL_PLAINTEXT"),
        ("protocol: SSL, cafile: /a", "unknown key `cafile`"),
        (
            "protocol: SASL_PLAINTEXT, mechanism: PLAIN, user: a, password: '${K}'",
            "PLAIN would send the password",
        ),
        (
            "protocol: SASL_PLAINTEXT, mechanism: SCRAM-SHA-256, user: a, password: '${K}', ca: /a",
            "expected no `ca` with",
        ),
    ],
)
def test_what_does_not_fit_together_is_told(tmp_path, block, told):
    assert told in problem(tmp_path, block, K=SECRET)


def test_an_embedded_broker_has_no_security(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("kafka: {security: {protocol: SSL}}\n")
    with pytest.raises(UsageError, match="expected `bootstrap` with `security`"):
        load_profile(str(path), tmp_path, {})


@pytest.mark.parametrize("kind", ["RSA", "EC", "ENCRYPTED"])
def test_a_key_that_java_can_not_read_is_told_with_the_way_out(tmp_path, kind):
    key = tmp_path / "old.key"
    key.write_text(f"-----BEGIN {kind} PRIVATE KEY-----\n")
    with raises("tls_key_unsupported") as caught:
        source_options(Security(protocol="SSL", certificate="/a.pem", key=str(key)))
    assert f"{kind} PRIVATE KEY" in caught.value.message
    assert f"openssl pkcs8 -topk8 -nocrypt -in {key}" in caught.value.hint
    with raises("tls_key_unreadable") as caught:
        source_options(Security(protocol="SSL", certificate="/nowhere"))
    assert "/nowhere can't be read: No such file" in caught.value.message


def test_a_secret_that_is_missing_on_another_machine_is_told(tmp_path):
    with raises("secret_unavailable") as caught:
        reveal("${KAFKA}", {})
    assert "${KAFKA}" in caught.value.message
    with raises("secret_unavailable") as caught:
        reveal(f"${{file:{tmp_path}/nowhere}}")
    assert "No such file" in caught.value.message
    assert reveal("any other text") == "any other text"


def test_the_example_of_a_cluster_is_valid(tmp_path):
    text = (ROOT / "conf" / "cluster.yaml").read_text()
    path = tmp_path / "cluster.yaml"
    path.write_text(text.replace("${file:/run/secrets/", f"${{file:{tmp_path}/"))
    (tmp_path / "kafka-password").write_text(SECRET)
    found = load_profile(str(path), tmp_path, {}).kafka.security
    assert found is not None
    assert found.protocol == "SASL_SSL"


def test_the_schema_shows_how_a_secret_is_written():
    schema = json.loads((ROOT / "conf" / "profile.schema.json").read_text())
    password = schema["$defs"]["Security"]["properties"]["password"]
    assert "${file:" in json.dumps(password)


TWICE = (
    "kafka: {bootstrap: a:1, security: {protocol: SASL_SSL, mechanism: PLAIN, "
    'user: "${KAFKA}", password: "${KAFKA}"}}'
)


@pytest.mark.parametrize(
    ("profile", "line", "words"),
    [
        (
            TWICE,
            1,
            "`${KAFKA}` here: it is the secret `kafka.security.password` of profile 'a'",
        ),
        (
            'deployment: "at ${WHO}"\nregistry: {url: "https://a", user: b, password: "${WHO}"}\n',
            1,
            "`${WHO}` here: it is the secret `registry.password` of profile 'a'",
        ),
    ],
)
def test_a_secret_in_another_value_of_a_profile_is_refused(tmp_path, profile, line, words):
    path = tmp_path / "a.yaml"
    path.write_text(profile)
    with pytest.raises(UsageError) as caught:
        load_profile(str(path), tmp_path, {"KAFKA": SECRET, "WHO": SECRET})
    (found,) = caught.value.fields["problems"]
    assert (found.line, words in found.message) == (line, True), found
    assert SECRET not in str(caught.value)


def test_a_file_fills_in_what_is_no_secret_by_its_name(tmp_path):
    """In a profile any: what Spark's settings say goes to Spark alone."""
    (tmp_path / "secrets").mkdir()
    for name in ("topic", "secrets/topic", "s3.password", "token_topic"):
        (tmp_path / name).write_text(f"{Path(name).name}-filled\n")
    profile = tmp_path / "a.yaml"
    given = f"kafka: {{bootstrap: '${{file:{tmp_path}/topic}}:1'}}\n"
    given += f"spark: {{conf: {{a.secret: '${{file:{tmp_path}/s3.password}}'}}}}\n"
    profile.write_text(given)
    found = load_profile(str(profile), tmp_path, {})
    assert found.kafka.bootstrap == ("topic-filled:1",)
    assert found.spark.conf == {"a.secret": "s3.password-filled"}
    pipeline = tmp_path / "pipeline.yaml"
    text = "version: 1\nname: a\nsource: {kafka: {topic: '${file:PATH}'}}\n"
    text += "sink: {kafka: {topic: out}}\n"
    for name, is_filled in {
        "topic": True,
        "token_topic": True,
        "s3.password": False,
        "secrets/topic": False,
    }.items():
        path = str(tmp_path / name)
        pipeline.write_text(text.replace("PATH", path))
        if is_filled:
            made = load_pipeline(pipeline, {})
            assert made.source.kafka.topic == f"{Path(name).name}-filled"
        else:
            with pytest.raises(UsageError) as caught:
                load_pipeline(pipeline, {})
            (problem,) = caught.value.fields["problems"]
            assert f"expected no `${{file:{path}}}` in a pipeline file: its name" in problem.message
            assert "filled" not in str(caught.value)


def test_a_file_that_the_profile_names_as_a_secret_shows_nowhere(tmp_path):
    (tmp_path / "kp").write_text(SECRET)
    reference = f"${{file:{tmp_path}/kp}}"
    path, pipeline = tmp_path / "a.yaml", tmp_path / "pipeline.yaml"
    text = f'registry: {{url: "https://a", user: b, password: "{reference}"}}\n'
    path.write_text(text)
    profile = load_profile(str(path), tmp_path, {})
    pipeline.write_text(
        f"version: 1\nname: a\nsource: {{kafka: {{topic: '{reference}'}}}}\n"
        "sink: {kafka: {topic: out}}\n"
    )
    with pytest.raises(UsageError) as caught:
        require_hidden(load_pipeline(pipeline, {}), profile)
    path.write_text(f'deployment: "{reference}"\n{text}')
    with pytest.raises(UsageError) as also:
        load_profile(str(path), tmp_path, {})
    for error in (caught, also):
        (found,) = error.value.fields["problems"]
        assert f"no `{reference}` here: it is the secret `registry.password` of" in found.message
        assert SECRET not in str(error.value)


def test_a_profiles_secret_is_known_by_every_path_to_it(tmp_path):
    (tmp_path / "kp").write_text(SECRET)
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kp")
    (tmp_path / "hard").hardlink_to(tmp_path / "kp")
    (tmp_path / "client").write_text(SECRET)
    profile = tmp_path / "a.yaml"
    profile.write_text(
        f"kafka: {{bootstrap: a:1, security: {{protocol: SASL_SSL, mechanism: PLAIN, user: u, "
        f'password: "${{file:{tmp_path}/kp}}", certificate: /c, key: {tmp_path}/client}}}}\n'
    )
    named = load_profile(str(profile), tmp_path, {})
    for path, of in {
        "./kp": "password",
        "/kp": "password",
        "inner/../kp": "password",
        "link": "password",
        "hard": "password",
        "./client": "key",
    }.items():
        reference = f"${{file:{tmp_path}/{path}}}"
        pipeline = tmp_path / "pipeline.yaml"
        pipeline.write_text(
            f"version: 1\nname: a\nsource: {{kafka: {{topic: '{reference}'}}}}\n"
            "sink: {kafka: {topic: out}}\n"
        )
        with pytest.raises(UsageError) as caught:
            require_hidden(load_pipeline(pipeline, {}), named)
        assert f"it is the secret `kafka.security.{of}` of profile" in caught.value.message, path
        assert SECRET not in str(caught.value)


def test_a_link_to_a_secret_is_a_secret(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "topic").write_text("x")
    (tmp_path / "topic").symlink_to(tmp_path / "secrets" / "topic")
    assert says_secret(f"{tmp_path}/topic")
    assert not says_secret(f"{tmp_path}/elsewhere")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "MYSQL_PWD",
            "KAFKA_PASS",
            "PASS",
            "DB_PASSWORD_2",
            "PASSWORD1",
            "API_TOKENS",
            "PG_CREDS",
        ),
        *("SSH_KEY", "SIGNING_KEY", "SASL_JAAS_CONFIG", "BASIC_AUTH", "CONNECTION_STRING"),
        *("/etc/tls/client.pem", "/etc/tls/tls.key", "/h/me/.ssh/config", "/h/me/id_rsa"),
        *("/x/id_ed25519", "/x/client.p12", "/x/broker.keystore.jks", "/x/u.keytab", "/x/.netrc"),
        *("/x/.pgpass", "/x/SECRETS/topic", "/h/me/.aws/config", "/x/db.pwd", "/x/kafka_pass"),
        *("/proc/self/environ", "/proc/1/environ", "/x/../proc/self/environ"),
    ],
)
def test_names_of_secrets(name):
    assert says_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PWD", "OLDPWD", "COMPASS", "BYPASS", "TOKEN_TOPIC", "KEY", "ORDER_KEY", "PASSENGERS"),
        *("TOPIC", "MONKEY", "/x/id_rsa.pub", "/run/config/topic", "/x/secretary", "/x/process"),
    ],
)
def test_names_of_what_is_no_secret(name):
    assert not says_secret(name)


def test_the_way_out_for_a_secret_that_is_not_set_is_no_default(tmp_path):
    told = problem(tmp_path, f'{LOGIN}, password: "${{PW}}"')
    assert "`PW`, which is not set; set it, or read a file with `${file:/path}`" in told
    assert ":-" not in told
    broken = problem(tmp_path, f'{LOGIN}, password: "${{P W}}"')
    assert "expected `${VAR}` or `${file:/path}`; write `$$`" in broken
    path = tmp_path / "a.yaml"
    path.write_text('spark: {conf: {a: "${S3_SECRET_KEY}", b: "${REGION}"}}')
    with pytest.raises(UsageError) as caught:
        load_profile(str(path), tmp_path, {})
    named, other = (each.message for each in caught.value.fields["problems"])
    assert named.endswith("not set; set it (a default would put the secret into this file)")
    assert other.endswith("not set; set it, or write `${REGION:-default}` to give it a default")
