"""Access to a bucket of S3, or of a compatible server, for tables and files outside the JVM.

Spark writes checkpoints through Hadoop's client S3A. delta-rs and pyarrow write the tables and
files of the state root, also in processes without a JVM. Both get S3A's settings from the profile
here, so a bucket is configured once. Settings that the profile lacks are read from the AWS_*
variables. Without credentials in either, the libraries search for them as AWS's own tools do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eos.errors import UsageError
from eos.location import scheme_of

SCHEMES = ("s3a", "s3")
_SETTING = "spark.hadoop.fs.s3a."
# Classes of S3A's `aws.credentials.provider` that find the same credentials as the libraries do.
_PROVIDERS = (
    "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "DefaultCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "ContainerCredentialsProvider",
)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)\s*(ns|us|ms|s|m|h|d)?")
_AMAZON = re.compile(r"s3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com")
_REGION = "us-east-1"
# The libraries' clients have no limit of the whole call, so both factors are bounded.
_TIMEOUT_S, _RETRIES = 30.0, 3


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A bucket's address, credentials and limits.

    An empty `endpoint` is Amazon's. Without `key`, the libraries look for credentials themselves.
    """

    bucket: str
    endpoint: str = ""  # with its scheme
    region: str = _REGION
    is_path_style: bool = False
    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    timeout_s: float = _TIMEOUT_S  # of one request
    retries: int = _RETRIES

    def delta_options(self) -> dict[str, str]:
        """Return delta-rs's storage options for this bucket.

        A commit must fail if another process made that version, so options that switch this off in
        the environment are overridden.
        """
        options = {
            "AWS_REGION": self.region,
            "AWS_CONDITIONAL_PUT": "etag",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
            "timeout": f"{self.timeout_s:g}s",
            "connect_timeout": f"{self.timeout_s:g}s",
            "max_retries": str(self.retries),
            "retry_timeout": f"{self.timeout_s * (self.retries + 1):g}s",
        }
        if self.endpoint:
            options["AWS_ENDPOINT_URL"] = self._addressed()
            options["AWS_ALLOW_HTTP"] = str(self.endpoint.startswith("http:")).lower()
        options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = str(not self.is_path_style).lower()
        given = (
            ("AWS_ACCESS_KEY_ID", self.key),
            ("AWS_SECRET_ACCESS_KEY", self.secret),
            ("AWS_SESSION_TOKEN", self.token),
        )
        return options | {name: text for name, text in given if text}

    def filesystem(self) -> Any:
        """Return pyarrow's client of this store."""
        from pyarrow import fs  # late: it starts the SDK, which most runs do not need

        scheme, _, address = self.endpoint.partition("://")
        given = {"access_key": self.key, "secret_key": self.secret, "session_token": self.token}
        return fs.S3FileSystem(
            region=self.region,
            endpoint_override=address or None,
            scheme=scheme or "https",
            force_virtual_addressing=bool(address) and not self.is_path_style,
            request_timeout=self.timeout_s,
            connect_timeout=self.timeout_s,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=self.retries + 1),
            **{name: text for name, text in given.items() if text},
        )

    def _addressed(self) -> str:
        """Return the endpoint as delta-rs needs it: with the bucket, unless that is in the path."""
        if self.is_path_style:
            return self.endpoint
        scheme, _, address = self.endpoint.partition("://")
        return f"{scheme}://{self.bucket}.{address}"


def is_in_bucket(location: str) -> bool:
    """Return whether tables and files at this location are accessed as an object store."""
    return scheme_of(location) in SCHEMES


def store_of(
    location: str, conf: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> ObjectStore:
    """Return the access to a location's bucket. `conf` is the profile's `spark.conf`.

    Raise UsageError if a setting has no counterpart outside the JVM.
    """
    env = os.environ if environ is None else environ
    bucket = location.partition("://")[2].partition("/")[0]

    def setting(name: str, *variables: str) -> str:
        own = conf.get(f"{_SETTING}bucket.{bucket}.{name}")
        found = own if own is not None else conf.get(f"{_SETTING}{name}", "")
        return found or next((env[each] for each in variables if env.get(each)), "")

    _require_known_providers(setting("aws.credentials.provider"))
    key, secret, token = (setting(name) for name in ("access.key", "secret.key", "session.token"))
    if not key:
        key, secret, token = (
            env.get(f"AWS_{name}", "")
            for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
        )
    endpoint = setting("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    is_amazon = _AMAZON.search(endpoint)
    region = setting("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION")
    if endpoint and "://" not in endpoint:
        is_plain = setting("connection.ssl.enabled").lower() == "false"
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    return ObjectStore(
        bucket,
        "" if is_amazon else endpoint.rstrip("/"),
        region or (is_amazon[1] if is_amazon else _REGION),
        setting("path.style.access").lower() == "true",
        key,
        secret,
        token,
        _seconds(setting("connection.timeout")),
        _count(setting("retry.limit")),
    )


def _require_known_providers(classes: str) -> None:
    for each in filter(None, map(str.strip, classes.split(","))):
        if each.rpartition(".")[2] not in _PROVIDERS:
            raise UsageError(
                "store_credentials_unsupported",
                f"{_SETTING}aws.credentials.provider names {each}, a class that only a JVM can use",
                hint="the state root's tables are written outside the JVM: set access.key and "
                "secret.key, or the AWS_* variables (docs/state-roots.md)",
            )


def _seconds(text: str) -> float:
    """Return one of Hadoop's durations in seconds: a number of milliseconds, or with a unit."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        return _TIMEOUT_S
    return min(float(match[1]) * _SECONDS[match[2] or "ms"], 600.0) or _TIMEOUT_S


def _count(text: str) -> int:
    return min(int(text), 20) if text.isdecimal() else _RETRIES
