"""One node of the embedded Kafka cluster: its settings, files and processes.

    ROOT/cluster.json   the cluster's id, its version, and every node's ports
    ROOT/start.lock     held while a process starts the cluster
    ROOT/stop.lock      held while a process checks for users of the cluster and stops it
    ROOT/users          each process that uses the cluster holds a shared lock on this file
    ROOT/keep           if it exists, the cluster runs on without users
    ROOT/node-1/        lock, state.json, server.properties, data/, temporary/, and the logs
                        broker.log and console.log

If there is no class-data archive yet, each node's JVM writes the names of its loaded classes to the
file `classes` in its folder. The archive, which shortens later startups, is made from node 1's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eos import private_files
from eos.errors import UnavailableError, UsageError
from eos.local import supervisor
from eos.local.class_archive import Archive, archive_of
from eos.local.file_locks import is_held
from eos.local.jars import BROKER_VERSION, ensure, of_broker
from eos.local.java import find_java

HOST = "127.0.0.1"
_LOG_SETTINGS = Path(__file__).with_name("broker-log4j2.properties")
# No optimizing compiler in the broker's JVM. It costs two CPU seconds at startup, which were not
# regained after 2 million records: a broker spends its time on copying and checksums.
_CHEAP = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA_OPTIONS = (*_CHEAP, "-Xms128m", "-Xmx512m", "-Djava.awt.headless=true")
_FORMAT_S_MAX = 120
_TOOL_OPTIONS = (*_CHEAP, "-Xmx256m")


@dataclass(frozen=True, slots=True)
class Ports:
    client: int
    controller: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster. Node numbers begin at 1."""

    number: int
    root: Path
    ports: Ports
    version: str = BROKER_VERSION

    @property
    def folder(self) -> Path:
        return self.root / f"node-{self.number}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def is_running(self) -> bool:
        """Return whether the node's supervisor or JVM is alive.

        The node's lock file shows it, which both hold while they live. A check of process ids could
        be wrong, because the system reuses them."""
        return is_held(self.folder / "lock")

    def pids(self) -> dict[str, int]:
        """Return the process ids of the node's supervisor and JVM, by the keys of state.json.

        They are valid only while the node runs. The result is empty if it never ran."""
        try:
            found: dict[str, int] = json.loads((self.folder / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def signal(self, process: str, number: signal.Signals) -> None:
        """Send a signal to the node's supervisor (`SUPERVISOR`) or JVM (`BROKER`) if it runs."""
        pid = self.pids().get(process)
        if pid and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def spawn(self, java_options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the supervisor, which starts the JVM. The caller must hold a lock on `users`."""
        archived = _archive(self.version).options(self._classes)
        temporary = f"-Djava.io.tmpdir={self._emptied_temporary_folder()}"
        command = [
            *(sys.executable, "-I", "-S", supervisor.__file__, str(self.folder), "--"),
            *_java(self.version, *java_options, temporary, *archived),
            *(self._logs, "kafka.Kafka", str(self.folder / "server.properties")),
        ]
        # A session of its own: Ctrl-C in a terminal must end the pipeline, but not its broker.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,
            umask=private_files.umask_in(self.folder),
        )

    def _emptied_temporary_folder(self) -> Path:
        """Return the folder for the JVM's temporary files: its native libraries, about 1 MB. A JVM
        that was killed has left them."""
        folder = self.folder / "temporary"
        shutil.rmtree(folder, ignore_errors=True)
        return private_files.create_folder(folder)

    def prepare(
        self,
        cluster_id: str,
        everyone: Sequence[Node],
        extra: Mapping[str, str],
        features: Mapping[str, int],
    ) -> None:
        """Write the node's server.properties. Format the data folder with `features` if it is new.

        `extra` overrides or adds settings."""
        if "," in str(self.data):
            raise UsageError(
                "broker_folder_with_comma",
                f"the broker's data folder `{self.data}` has a comma in its path, and Kafka reads "
                "`log.dirs` as a list",
                hint="choose a `state.root` without a comma, or rename the folder",
            )
        private_files.own(self.folder)
        settings = self.folder / "server.properties"
        found = _settings(self, everyone, extra).items()
        with open(settings, "w", encoding="ascii", opener=private_files.opener) as file:
            file.writelines(f"{key}={_property(value)}\n" for key, value in found)
        if not (self.data / "meta.properties").exists():
            named = (f"{name}={level}" for name, level in features.items())
            more = (word for feature in named for word in ("--feature", feature))
            self._format(["--cluster-id", cluster_id, "--config", str(settings), *more])

    def _format(self, options: Sequence[str]) -> None:
        tool = java_command(self._logs, "kafka.tools.StorageTool", version=self.version)
        try:
            done = subprocess.run(
                [*tool, "format", "--ignore-formatted", *options],
                capture_output=True,
                text=True,
                check=False,
                timeout=_FORMAT_S_MAX,
                env=_environment(),
                umask=private_files.umask_in(self.folder),
            )
            if not done.returncode:
                return
            output = done.stderr.strip()
        except subprocess.TimeoutExpired:
            output = f"Kafka's tool has not ended within {_FORMAT_S_MAX} s"
        raise UnavailableError(
            "broker_format_failed",
            f"the data folder `{self.data}` could not be formatted: {output}",
            hint="the error of Kafka's tool names the cause. For free space and write access, "
            f"check `df {self.root}` and `ls -ld {self.folder}`",
        )

    def make_archive(self) -> None:
        """Start a background process that makes a class-data archive for the broker's JVM.

        Call this after a clean end. The archive shortens later startups. The process uses no path
        in the node's folder, which may be removed meanwhile.
        """
        archive = _archive(self.version)
        command = _java(self.version, *archive.dump_options, "kafka.Kafka")
        archive.make_later(self._classes, command, os.environ)

    @property
    def _logs(self) -> str:
        return f"-Deos.broker.logs={self.folder}"

    @property
    def _classes(self) -> Path:
        return self.folder / "classes"

    def complaint(self) -> str:
        """Return the last error lines of the node's logs, for an error message."""
        lines: list[str] = []
        for name in ("broker.log", "console.log"):
            with contextlib.suppress(OSError):
                text = (self.folder / name).read_text(encoding="utf-8", errors="replace")
                lines += [line for line in text.splitlines()[-200:] if _is_error(line)]
        return "\n".join(lines[-6:])


def nodes_of(root: Path, known: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the nodes of a cluster. `known` is the content of its `cluster.json`."""
    version = known.get("version", BROKER_VERSION)
    pairs = enumerate(known["ports"], 1)
    return tuple(Node(number, root, Ports(*pair), version) for number, pair in pairs)


def addresses_of(nodes: Iterable[Node]) -> str:
    return ",".join(f"{HOST}:{node.ports.client}" for node in nodes)


def java_command(*arguments: str, version: str = BROKER_VERSION) -> list[str]:
    """Return a command line that runs one of Kafka's tools with the pinned jars."""
    return _java(version, *_TOOL_OPTIONS, *_archive(version).options(), *arguments)


def _java(version: str, *arguments: str) -> list[str]:
    """Return a Java command line with the broker's class path.

    All commands use this function, so that they have the same class path: a class-data archive is
    valid only for the class path with which it was made."""
    class_path = os.pathsep.join(map(str, _jars(version)))
    settings = f"-Dlog4j2.configurationFile={_LOG_SETTINGS}"
    return [str(find_java().binary), "-cp", class_path, settings, *arguments]


def _archive(version: str) -> Archive:
    return archive_of(f"broker{version}", find_java(), _jars(version))


def _jars(version: str) -> list[Path]:
    return [path for paths in ensure(*of_broker(version)).values() for path in paths]


def free_ports(count: int) -> list[int]:
    """Return `count` distinct ports that are free now.

    Another process may bind one before the caller does."""
    sockets = []
    try:
        for _ in range(count):
            one = socket.socket()
            sockets.append(one)
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker's JVM sets it
        try:
            one.bind((HOST, port))
        except OSError:
            return False
    return True


def _environment() -> dict[str, str]:
    """Return the environment of a JVM, which encodes file names by its locale."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _property(value: str) -> str:
    """Return a value as text of a properties file, which Kafka reads as ISO-8859-1."""
    units = struct.iter_unpack(">H", value.replace("\\", r"\\").encode("utf-16-be"))
    return "".join(chr(unit) if 0x20 <= unit < 0x7F else f"\\u{unit:04x}" for (unit,) in units)


def _is_error(line: str) -> bool:
    return any(word in line for word in ("ERROR", "FATAL", "Exception", "Error:"))


def _settings(node: Node, everyone: Sequence[Node], extra: Mapping[str, str]) -> dict[str, str]:
    replicas = min(len(everyone), 3)
    in_sync = max(1, replicas - 1)
    client = f"PLAINTEXT://{HOST}:{node.ports.client}"
    # The plaintext listener that eos connects to is first. `extra` may add others, such as TLS.
    more = ",".join(filter(None, (client, extra.get("listeners"))))
    voters = ",".join(f"{one.number}@{HOST}:{one.ports.controller}" for one in everyone)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        # Static voters. Dynamic ones would be stored with their ports in the data, but ports may
        # change between two starts of the cluster.
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "advertised.listeners": more,
        "log.dirs": str(node.data),
        # Fail on a mistyped topic name instead of creating the topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # Internal topics get few partitions, because each costs files and startup time.
        "offsets.topic.num.partitions": "5",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        # Shorter than the default of 9 s: a killed node can rejoin only after this timeout.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # By default a controller writes an empty record into the metadata log twice a second while
        # nothing changes. That is a third of the CPU time of an idle broker.
        "metadata.max.idle.interval.ms": "0",
        # Use few threads and small buffers, because this broker shares the machine with Spark.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        **extra,
        "listeners": f"{more},CONTROLLER://{HOST}:{node.ports.controller}",
    }
