"""The settings of a bucket outside the JVM: those of S3A in the profile, then the environment's."""

from __future__ import annotations

import pickle

import pytest
from support.errors import raises

from eos.errors import UsageError
from eos.folder import BucketFolder, LocalFolder, folder_of
from eos.object_store import store_of

ROOT = "s3a://lake/eos"
NONE: dict[str, str] = {}


def conf(**settings: str) -> dict[str, str]:
    return {f"spark.hadoop.fs.s3a.{key.replace('_', '.')}": text for key, text in settings.items()}


def test_the_profile_comes_first_then_the_environment() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "env-key",
        "AWS_SECRET_ACCESS_KEY": "env-secret",
        "AWS_SESSION_TOKEN": "env-token",
        "AWS_ENDPOINT_URL": "http://env:1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    found = store_of(ROOT, NONE, environ)
    assert (found.key, found.secret, found.token) == ("env-key", "env-secret", "env-token")
    assert (found.endpoint, found.region) == ("http://env:1", "eu-west-1")

    given = conf(access_key="k", secret_key="s", endpoint="https://own:9", endpoint_region="r")
    found = store_of(ROOT, given, environ)
    # The token in the environment belongs to the other key.
    assert (found.key, found.secret, found.token) == ("k", "s", "")
    assert (found.endpoint, found.region) == ("https://own:9", "r")

    of_bucket = {**given, **conf(bucket_lake_access_key="b"), **conf(bucket_other_access_key="o")}
    assert store_of(ROOT, of_bucket, environ).key == "b"


@pytest.mark.parametrize(
    ("settings", "endpoint", "region"),
    [
        ({}, "", "us-east-1"),
        ({"endpoint": "s3.eu-central-1.amazonaws.com"}, "", "eu-central-1"),
        ({"endpoint": "host:9000"}, "https://host:9000", "us-east-1"),
        (
            {"endpoint": "host:9000", "connection_ssl_enabled": "false"},
            "http://host:9000",
            "us-east-1",
        ),
    ],
)
def test_endpoints(settings: dict[str, str], endpoint: str, region: str) -> None:
    found = store_of(ROOT, conf(**settings), NONE)
    assert (found.endpoint, found.region) == (endpoint, region)


def test_the_options_of_delta_rs() -> None:
    given = conf(endpoint="http://host:9000", connection_timeout="15s", retry_limit="2")
    options = store_of(ROOT, given, {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}).delta_options()
    assert options["AWS_ENDPOINT_URL"] == "http://lake.host:9000"
    assert options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] == "true"
    assert options["AWS_ALLOW_HTTP"] == "true"
    assert options["AWS_S3_ALLOW_UNSAFE_RENAME"] == "false"
    assert options["AWS_CONDITIONAL_PUT"] == "etag"
    assert (options["timeout"], options["max_retries"]) == ("15s", "2")
    assert "AWS_ACCESS_KEY_ID" not in options, "the library looks for credentials itself"
    path_style = store_of(ROOT, {**given, **conf(path_style_access="true")}, NONE)
    assert path_style.delta_options()["AWS_ENDPOINT_URL"] == "http://host:9000"


def test_credentials_that_only_a_jvm_finds_are_refused() -> None:
    provider = "spark.hadoop.fs.s3a.aws.credentials.provider"
    known = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    store_of(ROOT, {provider: known}, NONE)
    with raises("store_credentials_unsupported", UsageError) as refused:
        store_of(ROOT, {provider: f"{known}, com.example.Vault"}, NONE)
    assert "com.example.Vault" in refused.value.message


def test_no_text_of_a_folder_has_its_secrets() -> None:
    folder = folder_of(ROOT, conf(access_key="the-key", secret_key="the-secret"))
    assert isinstance(folder, BucketFolder)
    assert "the-" not in f"{folder} {folder!r}"
    sent = pickle.loads(pickle.dumps(folder.child("audit/transactions")))
    assert str(sent) == "s3a://lake/eos/audit/transactions"
    assert sent.uri == "s3://lake/eos/audit/transactions"
    assert str(sent.sibling("producers")) == "s3a://lake/eos/audit/producers"


def test_a_root_that_only_spark_can_write_has_no_folder(tmp_path) -> None:
    assert folder_of("hdfs://name:8020/eos", NONE) is None
    assert folder_of("gs://lake/eos", NONE) is None
    assert folder_of(str(tmp_path), NONE) == LocalFolder(tmp_path)
