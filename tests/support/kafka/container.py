"""Kafka in a container, on docker or podman: `./tests/run all --kafka container`.

The image is built from `tests/container/Containerfile` and the pinned jars. Its base, a Java, is
pulled where that is possible; else it is made of Debian's packages (mmdebstrap). As a program, this
file builds the image, or prints one line on why this machine runs no containers (exit 3).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eos.errors import EosError
from eos.local.broker_node import HOST, free_ports
from eos.local.broker_probe import live_brokers
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.jars import ensure, of_broker

PLACE = Path(__file__).parents[2] / "container"
JAVA = ("eclipse-temurin", "17-jre")  # pulled, if it can be
IMAGE, OWN_JAVA = "localhost/eos-kafka", "localhost/eos-java:17"
DOCKER = Path("/var/run/docker.sock")
WAIT_S_MAX = 600  # a bound, not a measure
_IDLE_S = 3600  # podman's service ends by itself, but not while tests run
_POLL_S = 0.05
# What podman can't raise by itself without a user session.
_ULIMITS = (("nofile", 10_000), ("nproc", 10_000))


@dataclass(frozen=True)
class Mounted:
    """A node whose logs lie on this machine."""

    data: Path


class ContainerKafka:
    """One node, as long as it is entered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_ports(1)[0]
        self.bootstrap = f"{HOST}:{self._port}"
        self.nodes = (Mounted(folder / "data"),)
        self.tool = EmbeddedKafka(folder / "tools").tool

    @contextmanager
    def running(self) -> Iterator[ContainerKafka]:
        from docker.types import Ulimit
        from testcontainers.core.container import DockerContainer

        self.nodes[0].data.mkdir(parents=True)
        settings = (PLACE / "server.properties").read_text(encoding="utf-8")
        advertised = f"advertised.listeners=CLIENTS://{self.bootstrap},INSIDE://127.0.0.1:9094\n"
        (self._folder / "server.properties").write_text(settings + advertised, encoding="utf-8")
        ulimits = [Ulimit(name=name, soft=most, hard=most) for name, most in _ULIMITS]
        container = (
            DockerContainer(image_name(), docker_client_kw={"timeout": WAIT_S_MAX})
            .with_env("CLUSTER_ID", "MkU3OEVBNTcwNTJENDM2Qg")
            .with_bind_ports(9092, self._port)
            .with_volume_mapping(str(self._folder), "/kafka", "rw")
            .with_kwargs(ulimits=ulimits)
        )
        with closing(container.get_docker_client().client), container:
            self._wait_serving(container)
            yield self

    def _wait_serving(self, container: Any) -> None:
        give_up_at = time.monotonic() + WAIT_S_MAX
        while live_brokers(self._port) != {1}:
            if time.monotonic() > give_up_at or not _runs(container):
                raise RuntimeError(f"the container does not serve: {container.get_logs()}")
            time.sleep(_POLL_S)


def _runs(container: Any) -> bool:
    wrapped = container.get_wrapped_container()
    wrapped.reload()
    return bool(wrapped.status in {"created", "running"})


@contextmanager
def kafka_in_container(folder: Path) -> Iterator[ContainerKafka]:
    with engine(), ContainerKafka(folder).running() as kafka:
        yield kafka


@contextmanager
def engine() -> Iterator[Any]:
    """A client of docker where its daemon answers, else of podman. Raises RuntimeError."""
    import docker

    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # it would have to be pulled
    with ExitStack() as stack:
        if "DOCKER_HOST" not in os.environ and not DOCKER.exists():
            os.environ["DOCKER_HOST"] = stack.enter_context(_podman())
            stack.callback(os.environ.pop, "DOCKER_HOST")
        client = stack.enter_context(closing(docker.from_env(timeout=WAIT_S_MAX)))
        client.ping()
        yield client


@contextmanager
def _podman() -> Iterator[str]:
    if shutil.which("podman") is None:
        raise RuntimeError("no docker daemon answers, and podman is not installed")
    with tempfile.TemporaryDirectory(prefix="eos-") as folder:
        socket = Path(folder) / "podman.sock"
        # crun, podman's first choice, needs control groups that a container on its own may lack.
        runtime = ["--runtime", "runc"] if shutil.which("runc") else []
        service = subprocess.Popen(
            ["podman", *runtime, "system", "service", "--time", str(_IDLE_S), f"unix://{socket}"],
            stderr=subprocess.DEVNULL,
        )
        try:
            give_up_at = time.monotonic() + WAIT_S_MAX
            while not socket.exists():
                if service.poll() is not None or time.monotonic() > give_up_at:
                    raise RuntimeError(f"podman serves no clients (exit {service.poll()})")
                time.sleep(_POLL_S)
            yield f"unix://{socket}"
        finally:
            service.terminate()
            service.wait(WAIT_S_MAX)


# --- the image ------------------------------------------------------------------------------------


def image_name() -> str:
    """By content: what is made of other files is another image."""
    known = hashlib.sha256()
    for path in (*sorted(PLACE.iterdir()), *_jars()):
        known.update(path.name.encode())
        known.update(path.read_bytes() if path.parent == PLACE else b"")
    return f"{IMAGE}:{known.hexdigest()[:12]}"


def make_image(client: Any) -> str:
    """Returns at once if it is there. Images of earlier files are removed."""
    import docker

    name = image_name()
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        for old in client.images.list(IMAGE):
            client.images.remove(old.id, force=True)
        with tempfile.TemporaryDirectory(prefix="eos-") as folder:
            context = Path(folder)
            for path in PLACE.iterdir():
                shutil.copy(path, context)
            (context / "jars").mkdir()
            for jar in _jars():
                shutil.copy(jar, context / "jars")
            base = {"BASE": _java(client)}
            client.images.build(path=folder, dockerfile="Containerfile", tag=name, buildargs=base)
    return name


def _java(client: Any) -> str:
    import docker

    name, tag = JAVA
    try:
        return str(client.images.pull(name, tag=tag).tags[0])
    except docker.errors.DockerException:
        pass  # no network but the package registries
    try:
        client.images.get(OWN_JAVA)
    except docker.errors.ImageNotFound:
        if shutil.which("mmdebstrap") is None:
            raise RuntimeError("no image can be pulled, and mmdebstrap is not installed") from None
        with tempfile.TemporaryDirectory(prefix="eos-") as folder:
            options = ["--quiet", "--variant=essential", "--include=openjdk-17-jre-headless"]
            made = Path(folder) / "java.tar"
            subprocess.run(["mmdebstrap", *options, "bookworm", str(made)], check=True)
            (Path(folder) / "Dockerfile").write_text("FROM scratch\nADD java.tar /\n")
            client.images.build(path=folder, tag=OWN_JAVA)
    return OWN_JAVA


def _jars() -> list[Path]:
    return [path for paths in ensure(*of_broker()).values() for path in paths]


def main() -> int:
    import docker

    try:
        with engine() as client:
            print(f"Kafka's image is {make_image(client)}")
            client.containers.run(
                image_name(),
                entrypoint=["java", "-version"],
                remove=True,
                ulimits=[docker.types.Ulimit(name=n, soft=m, hard=m) for n, m in _ULIMITS],
            )
    except (RuntimeError, OSError, EosError, docker.errors.DockerException) as error:
        print(f"this machine runs no containers: {error}")
        return 3
    except subprocess.CalledProcessError as error:
        print(f"this machine runs no containers: `{error.cmd[0]}` exits {error.returncode}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
