"""Tokens of AWS's own signer, which needs no network if the credentials are in the environment."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.login.msk_signer import MskSigner
from eos.login.tokens import current


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that no account has, and no others of this machine."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "Planted-aws-secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


def test_a_token_is_a_signed_url_of_the_region() -> None:
    token = current(MskSigner("eu-west-1"), soon())
    assert current(MskSigner("eu-west-1"), soon()) is token
    url = urlsplit(base64.urlsafe_b64decode(token.value + "==").decode())
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    query = parse_qs(url.query)
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert "Planted" not in url.query
    assert token.ends_at is not None
    assert 600 < token.ends_at - time.time() <= 900


def test_without_credentials_or_signer_the_cause_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with raises("msk_signer_failed", UnavailableError) as caught:
        MskSigner("eu-west-2").fetch(soon())
    assert "aws sts get-caller-identity" in caught.value.hint
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with raises("msk_signer_missing") as caught:
        MskSigner("eu-west-2").fetch(soon())
    assert "spark-eos[msk]" in caught.value.hint
