"""Stores that a checkpoint may lie in: S3-compatible servers, and an HDFS of one DataNode.

Moto rejects logins when a test asks it to; VersityGW is a server that people run.

Each is a process of its own on free ports, and can be looked into past Hadoop's client
and past `eos`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from xml.etree import ElementTree as ET

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from eos.cache import cache_root
from eos.launch.java_wheel import ensure_java
from eos.launch.spark import find_spark
from eos.local.broker_node import free_ports
from eos.local.jars import HDFS, ensure
from eos.local.processes import end_with_parent
from support.machines.throttling import Throttling
from support.waiting import wait_until

BUCKET = "checkpoints"
MOTO = "moto"  # Moto's bucket
SLOW = "slow"  # of this bucket, a part of the requests may be refused for now
NOWHERE = "nowhere"  # nobody listens at this bucket's address
KEY, SECRET = "some-key", "some-secret"
VERSITY = "1.8.0"


class Store(Protocol):
    @property
    def root(self) -> str:
        """As a profile names it."""

    def names(self, path: str) -> list[str]:
        """All files below, relative to it. A path is relative to `root` without its last part."""

    def put(self, path: str, content: bytes) -> None: ...

    def get(self, path: str) -> bytes: ...

    def remove(self, path: str) -> None:
        """With all that is below."""


@dataclass
class S3:
    """A server of S3's protocol. Moto's asks nobody for a password until it is told to."""

    endpoint: str
    bucket: str = BUCKET  # one driver can use two servers that have different buckets
    client: Any = field(init=False)
    throttling: Throttling = field(init=False)

    def __post_init__(self) -> None:
        once = Config(
            read_timeout=300, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}
        )
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=once,
        )
        for bucket in (self.bucket, SLOW):
            self.client.create_bucket(Bucket=bucket)
        self.throttling = Throttling(self.endpoint)

    @property
    def root(self) -> str:
        return f"s3a://{self.bucket}/eos"

    def settings(self) -> dict[str, str]:
        """What S3A is told: where the server is, and an end of trying."""
        told = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": KEY,
            "secret.key": SECRET,
            "attempts.maximum": "1",
            "retry.limit": "2",
            "retry.interval": "100ms",
            f"bucket.{SLOW}.endpoint": self.throttling.endpoint,
            "retry.throttle.interval": "50ms",
            f"bucket.{NOWHERE}.endpoint": f"http://127.0.0.1:{free_ports(1)[0]}",
        }
        return {f"spark.hadoop.fs.s3a.{key}": value for key, value in told.items()}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """It knows nobody while this is entered."""
        self._allow("0")
        try:
            yield
        finally:
            self._allow("inf")

    def _allow(self, requests: str) -> None:
        url = f"{self.endpoint}/moto-api/reset-auth"
        request = urllib.request.Request(url, requests.encode(), {"Content-Type": "text/plain"})
        urllib.request.urlopen(request, timeout=300).close()

    def names(self, path: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{path}/").get(
            "Contents", []
        )
        return [each["Key"].removeprefix(f"{path}/") for each in found]

    def put(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=path, Body=content)

    def get(self, path: str) -> bytes:
        return self.client.get_object(Bucket=self.bucket, Key=path)["Body"].read()

    def remove(self, path: str) -> None:
        keys = [path, *(f"{path}/{name}" for name in self.names(path))]
        self.client.delete_objects(
            Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in keys]}
        )


@dataclass
class Hdfs:
    """Looked into by its NameNode's own HTTP interface."""

    address: str
    http: str

    @property
    def root(self) -> str:
        return f"hdfs://{self.address}/eos"

    def names(self, path: str) -> list[str]:
        found: list[str] = []
        for each in json.load(self._asked("GET", path, "LISTSTATUS"))["FileStatuses"]["FileStatus"]:
            name = each["pathSuffix"]
            below = self.names(f"{path}/{name}") if each["type"] == "DIRECTORY" else None
            found += [name] if below is None else [f"{name}/{more}" for more in below]
        return found

    def put(self, path: str, content: bytes) -> None:
        self._asked("PUT", path, "CREATE&overwrite=true", content)

    def get(self, path: str) -> bytes:
        return self._asked("GET", path, "OPEN").read()

    def remove(self, path: str) -> None:
        self._asked("DELETE", path, "DELETE&recursive=true")

    def _asked(self, method: str, path: str, what: str, content: bytes | None = None) -> Any:
        who = os.environ.get("USER") or "root"
        url = f"http://{self.http}/webhdfs/v1/{path}?op={what}&user.name={who}"
        if content is not None:  # the DataNode's address, then the file
            url = json.load(self._asked(method, path, f"{what}&noredirect=true"))["Location"]
        request = urllib.request.Request(url, content, method=method)
        return urllib.request.urlopen(request, timeout=300)


@contextmanager
def s3(folder: Path) -> Iterator[Callable[[], S3]]:
    """Moto, with a bucket of its own. It is waited for when it is called."""
    log = folder / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]

    def told() -> S3 | None:
        found = re.search(r"Running on (http\S+\d)", log.read_text(errors="replace"))
        return S3(found[1], MOTO) if found else None

    with _process(command, log) as process:
        yield cache(lambda: _awaited(process, log, told))


@contextmanager
def versity(folder: Path, *options: str) -> Iterator[S3]:
    """VersityGW on a folder of this machine. With `--nometa` it ignores If-None-Match."""
    log, data = folder / "versitygw.log", folder / "data"
    kept = options or ("--sidecar", str(folder / "sidecar"))  # else the disk needs attributes
    for each in (data, folder / "sidecar"):
        each.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [str(versity_binary()), "--port", address, "posix", *kept, str(data)]
    login = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}

    def told() -> S3 | None:
        try:
            return S3(f"http://{address}")
        except (BotoCoreError, ClientError):
            return None

    with _process(command, log, environment=login) as process:
        yield _awaited(process, log, told)


@cache
def versity_binary() -> Path:
    """Built once from its Go module, whose sums the module proxy's log has; minutes at first."""
    folder = cache_root() / f"versitygw-{VERSITY}"
    binary = folder / "versitygw"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        pytest.skip("this machine has no Go, which builds the S3 server VersityGW")
    with TemporaryDirectory(dir=cache_root(), prefix=".versitygw-") as made:
        module = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITY}"
        environment = {**os.environ, "GOBIN": made}
        built = subprocess.run(
            [go, "install", module], env=environment, capture_output=True, text=True, check=False
        )
        assert built.returncode == 0, f"{module} can't be built: {built.stderr[-3000:]}"
        folder.mkdir(exist_ok=True)
        (Path(made) / "versitygw").replace(binary)
    return binary


@contextmanager
def hdfs(folder: Path) -> Iterator[Callable[[], Hdfs]]:
    """It is waited for when it is called."""
    log, details, settings = folder / "hdfs.log", folder / "details.json", folder / "settings.xml"
    spark = find_spark().home / "jars"
    shared = ("hadoop-client-[ar]*", "slf4j-api-*", "jcl-over-slf4j-*", "commons-*")
    jars = [*ensure(HDFS)[HDFS], *(jar for each in shared for jar in spark.glob(f"{each}.jar"))]
    command = [
        *(str(ensure_java().binary), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
        *(f"-Dtest.build.data={folder}", "-cp", os.pathsep.join(map(str, jars))),
        *("org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"),
        *("-nnport", "0", "-writeConfig", str(settings), "-writeDetails", str(details)),
    ]

    def told() -> Hdfs | None:
        try:
            port = json.loads(details.read_text())["namenode_port"]
            found = {
                each.findtext("name"): each.findtext("value") or ""
                for each in ET.parse(settings).getroot()
            }
        except (OSError, ValueError, ET.ParseError):
            return None
        return Hdfs(f"127.0.0.1:{port}", found["dfs.namenode.http-address"])

    with _process(command, log, folder) as process:
        yield cache(lambda: _awaited(process, log, told))


@contextmanager
def _process(
    command: Sequence[str],
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _awaited(process: subprocess.Popen[bytes], log: Path, told: Callable[[], Any]) -> Any:
    return wait_until(told, lambda: log.read_text(errors="replace")[-3000:], process)
