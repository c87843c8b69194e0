"""A YARN of two nodes on this machine: Hadoop's own ResourceManager and NodeManagers.

They are processes of their own on free ports, in an environment without `eos` and its packages.
Applications keep their files in an HDFS, which `support.machines.stores` starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from eos.launch.spark import find_spark
from eos.local.broker_node import is_free
from eos.local.jars import YARN, ensure
from eos.local.processes import end_with_parent
from support.machines.bare_machine import JVM_FLAGS, bare_environment
from support.machines.stores import Hdfs, hdfs
from support.waiting import wait_until

NODES = 2
_DAEMONS = "org.apache.hadoop.yarn.server"
_LOG_SETTINGS = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
"""
_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}


@dataclass
class Yarn:
    """`conf` is the folder for HADOOP_CONF_DIR; `web` the address of the ResourceManager's API."""

    folder: Path
    conf: Path
    web: str
    store: Hdfs

    def application(self, of_name: str) -> Mapping[str, Any]:
        """The newest application of this name, as the ResourceManager reports it."""
        return self.applications(of_name)[-1]

    def applications(self, of_name: str) -> list[Mapping[str, Any]]:
        found = self._asked("apps")["apps"] or {"app": []}
        ours = [each for each in found["app"] if each["name"] == of_name]
        return sorted(ours, key=lambda each: each["id"])

    def attempts(self, application: str) -> int:
        return len(self._asked(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"])

    def said_by(self, application: str) -> str:
        """The output of all its containers."""
        logs = sorted(self.folder.glob(f"node-*/logs/{application}/*/std*"))
        return "\n".join(f"{each}:\n{each.read_text(errors='replace')}" for each in logs)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Hadoop's command `yarn application`."""
        return subprocess.run(
            [*_java(self.conf), "org.apache.hadoop.yarn.client.cli.ApplicationCLI", *words],
            env={**os.environ, "HADOOP_CONF_DIR": str(self.conf)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def _asked(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.web}/ws/v1/cluster/{path}", timeout=300) as answer:
            return json.load(answer)

    def runs_on(self) -> int:
        """How many nodes are ready."""
        try:
            nodes = self._asked("nodes")["nodes"] or {"node": []}
        except OSError:
            return 0
        return sum(node["state"] == "RUNNING" for node in nodes["node"])


@contextlib.contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(hdfs(folder))
        conf, environment = folder / "conf", bare_environment(folder)
        conf.mkdir()
        (conf / "log4j2.properties").write_text(_LOG_SETTINGS)
        ports = [f"127.0.0.1:{port}" for port in _ports(5)]
        settings = _settings(ports)
        _write(conf / "yarn-site.xml", settings)
        _write(conf / "capacity-scheduler.xml", _QUEUES)
        found = store()
        _write(conf / "core-site.xml", {"fs.defaultFS": f"hdfs://{found.address}"})
        made = Yarn(folder, conf, f"http://{ports[4]}", found)
        daemons = [stack.enter_context(_daemon("resourcemanager.ResourceManager", conf, conf, {}))]
        for number in range(NODES):
            node = folder / f"node-{number}"
            place = node / "conf"
            place.mkdir(parents=True)
            own = {
                "yarn.nodemanager.local-dirs": str(node / "local"),
                "yarn.nodemanager.log-dirs": str(node / "logs"),
            }
            _write(place / "yarn-site.xml", {**settings, **own})
            name = "nodemanager.NodeManager"
            daemons.append(stack.enter_context(_daemon(name, place, conf, environment)))

        def logs() -> str:
            return "\n".join(each.read_text()[-3000:] for each in folder.glob("**/conf/*.log"))

        wait_until(lambda: made.runs_on() == NODES, logs, daemons[0])
        yield made


def _ports(count: int) -> list[int]:
    """Return free ports below those that the system gives to connections and to servers without a
    port of their own, which could take one while the daemons start."""
    some = random.sample(range(20_000, 32_000), 1_000)
    return list(islice(filter(is_free, some), count))


def _settings(ports: Sequence[str]) -> dict[str, str]:
    names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    manager = [f"yarn.resourcemanager.{name}" for name in (*names, "webapp.address")]
    return {
        **dict(zip(manager, ports, strict=True)),
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.address": "127.0.0.1:0",
        "yarn.nodemanager.localizer.address": "127.0.0.1:0",
        "yarn.nodemanager.webapp.address": "127.0.0.1:0",
        "yarn.nodemanager.collector-service.address": "127.0.0.1:0",
        "yarn.nodemanager.resource.memory-mb": "8192",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.scheduler.minimum-allocation-mb": "128",
        # A full disk of the machine that runs the tests is no matter of theirs.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.nodemanager.heartbeat.interval-ms": "200",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    }


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")


def _java(*conf: Path) -> list[str]:
    spark = find_spark().home / "jars"
    shared = ("hadoop-client-[ar]*", "slf4j-api-*", "log4j-*", "jcl-over-slf4j-*", "commons-*")
    jars = [*ensure(YARN)[YARN], *(jar for each in shared for jar in spark.glob(f"{each}.jar"))]
    return [
        "java",
        *JVM_FLAGS.split(),
        "-Xmx512m",
        "-cp",
        os.pathsep.join(map(str, [*conf, *jars])),
    ]


@contextlib.contextmanager
def _daemon(
    name: str, own: Path, conf: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with (own / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            [*_java(own, conf), f"{_DAEMONS}.{name}"],
            env={**(environment or os.environ), "HADOOP_CONF_DIR": str(own)},
            cwd=own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)  # a NodeManager ends its containers, too
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
