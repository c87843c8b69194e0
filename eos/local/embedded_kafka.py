"""A Kafka cluster on this machine that runs as long as a process uses it: the embedded broker.

Each node is a JVM with a supervisor process (`supervisor.py`).
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType

from eos import private_files
from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.local import cluster_file, start_errors
from eos.local.broker_node import (
    JAVA_OPTIONS,
    Node,
    Ports,
    addresses_of,
    free_ports,
    is_free,
    java_command,
    nodes_of,
)
from eos.local.broker_probe import live_brokers
from eos.local.file_locks import FileLock, acquire_shared, exclusive
from eos.local.supervisor import BROKER, SUPERVISOR

START_MS_MAX = 120_000
STOP_MS_MAX = 60_000
_POLL_S = 0.05
_TRIES = 3  # another process may bind a free port before the broker does


class EmbeddedKafka:
    """An embedded Kafka cluster, as one of its users. Each node is broker and controller at once.

    Data under `root` persists between starts. A second user of the same `root`, in this or another
    process, shares the running cluster. The cluster stops when its last user has called `stop` or
    died, unless `keep` was called.

    Existing data keeps its number of `nodes` (default 1) and the Kafka `version` that was given
    when it was created; without one it uses the newest. `config`, `port` and `java_options` have
    no effect on a cluster that already runs, and `features` have no effect on existing data.
    """

    def __init__(
        self,
        root: Path,
        nodes: int | None = None,
        port: int | None = None,
        config: Mapping[str, str] | Callable[[Node], Mapping[str, str]] | None = None,
        *,
        version: str | None = None,
        features: Mapping[str, int] | None = None,
        java_options: Sequence[str] = JAVA_OPTIONS,
    ) -> None:
        self.root = root.resolve()
        self._count = nodes
        self._port = port
        self._config = config or {}
        self._version = version
        self._features = dict(features or {})
        self._java_options = java_options
        self._nodes: tuple[Node, ...] = ()
        self._supervisors: dict[int, subprocess.Popen[bytes]] = {}
        self._use: FileLock | None = None

    def __enter__(self) -> EmbeddedKafka:  # noqa: PYI034 - typing.Self begins with 3.11
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return addresses_of(self._nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes of the started cluster; none before `start`."""
        return self._nodes

    def start(self, deadline: Deadline | None = None) -> None:
        """Start the nodes that don't run yet. Return when every node serves requests."""
        deadline = deadline or Deadline.after_ms(START_MS_MAX)
        private_files.own(self.root)
        with exclusive(self.root / "start.lock", deadline):
            # Take our shared lock first: while we hold it, no supervisor stops the cluster.
            use = acquire_shared(self.root / "users", deadline)
            try:
                self._start(deadline)
            except BaseException:
                self._stop_started(Deadline.after_ms(STOP_MS_MAX))
                use.close()
                raise
            self._use = use

    def stop(self, deadline: Deadline | None = None) -> None:
        """Stop using the cluster. The last user also stops all nodes and waits for their end."""
        use, self._use = self._use, None
        if use is None:
            return
        deadline = deadline or Deadline.after_ms(STOP_MS_MAX)
        with self._let_go(use, deadline) as is_unused:
            if is_unused and not (self.root / "keep").exists():
                self._stop_nodes(deadline)
        for supervisor in self._supervisors.values():
            if supervisor.poll() is None:
                # It continues for other users, so don't wait for this child.
                supervisor.returncode = 0
        self._supervisors.clear()

    def keep(self) -> None:
        """Let the cluster run on without users, until `forget` or `end` is called."""
        private_files.touch(self.root / "keep")

    def forget(self) -> None:
        (self.root / "keep").unlink(missing_ok=True)

    def end(self, deadline: Deadline | None = None) -> None:
        """Undo `keep`, and stop the cluster: at once if it has no users, else after the last one.

        It never starts a node that is down, since that node may be unable to start.
        """
        if not self.root.exists():
            return
        deadline = deadline or Deadline.after_ms(STOP_MS_MAX)
        with exclusive(self.root / "start.lock", deadline):
            self._nodes = nodes_of(self.root, cluster_file.read(self.root))
            with self._let_go(None, deadline) as is_unused:
                # Only with the lock: else a supervisor could see no `keep` and stop its node first.
                self.forget()
                if is_unused and any(node.is_running for node in self._nodes):
                    self._stop_nodes(deadline)

    def kill(self, number: int, deadline: Deadline | None = None) -> None:
        """Send SIGKILL to one node's JVM, and wait until it has ended."""
        node = self._node(number)
        node.signal(BROKER, signal.SIGKILL)
        self._wait_gone(node, deadline or Deadline.after_ms(STOP_MS_MAX))

    def restart(self, *numbers: int, deadline: Deadline | None = None) -> None:
        """Restart the nodes with these numbers on their previous ports. They may be down."""
        deadline = deadline or Deadline.after_ms(START_MS_MAX)
        nodes = [self._node(number) for number in numbers]
        for node in nodes:
            node.signal(SUPERVISOR, signal.SIGTERM)
        for node in nodes:
            self._wait_gone(node, deadline)
            self._spawn(node)
        if not self._wait_ready(deadline):
            raise start_errors.ports_taken(self.root, self._nodes)

    def tool(
        self, main_class: str, *arguments: str, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line tool of Kafka, given by its Java class, and return its result.

        The caller checks the exit code. Tools always have the newest Kafka version, which supports
        older brokers and their logs. The cluster need not run.
        """
        private_files.create_folder(self.root)
        return subprocess.run(
            java_command(f"-Deos.broker.logs={self.root / 'tools'}", main_class, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            umask=private_files.umask_in(self.root),
        )

    # --- starting ------------------------------------------------------------------------------

    def _start(self, deadline: Deadline) -> None:
        for _ in range(_TRIES):
            cluster_id, self._nodes = self._layout()
            down = [node for node in self._nodes if not node.is_running]
            with ThreadPoolExecutor(len(self._nodes)) as pool:
                prepared = [
                    pool.submit(
                        node.prepare, cluster_id, self._nodes, self._extra(node), self._features
                    )
                    for node in down
                ]
                for one in prepared:
                    one.result()
            for node in down:
                self._spawn(node)
            if self._wait_ready(deadline):
                return
            # Another process bound one of the ports after `_choose` had found it free. If no node
            # runs after this, `_layout` chooses new ports.
            self._stop_started(deadline)
        raise start_errors.ports_taken(self.root, self._nodes)

    def _layout(self) -> tuple[str, tuple[Node, ...]]:
        """Return the cluster's id and nodes from `cluster.json`, which is created if it is missing.

        If no node runs, the ports are checked first. If another process uses one, new ports are
        chosen and stored. Raise UsageError for a number of nodes or a port that does not fit."""
        known = cluster_file.read(self.root)
        if "id" not in known:
            known["id"] = cluster_file.new_id()
            known |= {"version": self._version} if self._version else {}
        cluster_file.require_version(self.root, known, self._version)
        nodes = nodes_of(self.root, known)
        existing = len(nodes)
        if nodes and self._count not in {None, existing}:
            raise UsageError(
                "broker_nodes_mismatch",
                f"`{self.root}` has the data of a cluster of {existing} nodes, but {self._count} "
                "were requested",
                hint=f"remove --nodes to use that cluster, or delete `{self.root}` with its data",
            )
        if not any(node.is_running for node in nodes):
            ports = self._choose([node.ports for node in nodes])
            known["ports"] = [[pair.client, pair.controller] for pair in ports]
            nodes = nodes_of(self.root, known)
            cluster_file.write(self.root, known)
        elif self._port not in {None, port := nodes[0].ports.client}:
            raise UsageError(
                "broker_port_mismatch",
                f"the cluster in `{self.root}` already runs on port {port}",
                hint="stop it first: `eos broker stop`",
            )
        return known["id"], nodes

    def _extra(self, node: Node) -> Mapping[str, str]:
        return self._config(node) if callable(self._config) else self._config

    def _choose(self, before: list[Ports]) -> list[Ports]:
        """Return the ports of each node.

        These are the previous ports if all are free, so that addresses remain valid."""
        every = [port for pair in before for port in (pair.client, pair.controller)]
        # If clients now request a port that a controller used before, choose all ports again.
        if not every or self._port in every[1:] or not all(map(is_free, every)):
            every = free_ports(2 * (self._count or len(before) or 1))
        if self._port is not None:
            if not is_free(self._port):
                raise UsageError(
                    "broker_port_in_use",
                    f"port {self._port} is in use",
                    hint="choose another one with `eos broker start --port PORT`",
                )
            every[0] = self._port
        return [Ports(*every[at : at + 2]) for at in range(0, len(every), 2)]

    def _spawn(self, node: Node) -> None:
        before = self._supervisors.pop(node.number, None)
        if before is not None:
            before.wait()  # no long wait: the node is down, so its supervisor is ending
        self._supervisors[node.number] = node.spawn(self._java_options)

    def _wait_ready(self, deadline: Deadline) -> bool:
        """Wait until every node lists all nodes in its metadata, and return True.

        Return False if a node ended because its port is in use. Raise UnavailableError if a node
        ended for another reason or the deadline passes."""
        required = frozenset(node.number for node in self._nodes)
        waiting = set(self._nodes)
        while waiting:
            for node in tuple(waiting):
                if live_brokers(node.ports.client) == required:
                    waiting.discard(node)
                elif self._has_ended(node):
                    if "already in use" in node.complaint():
                        return False
                    raise start_errors.node_ended(self.root, self._nodes, node.number)
            if deadline.has_passed:
                raise start_errors.timed_out(self.root, self._nodes)
            time.sleep(_POLL_S if waiting else 0)  # a broker sends no signal when it is ready
        return True

    def _has_ended(self, node: Node) -> bool:
        own = self._supervisors.get(node.number)
        return own.poll() is not None if own is not None else not node.is_running

    # --- stopping ------------------------------------------------------------------------------

    @contextmanager
    def _let_go(self, use: FileLock | None, deadline: Deadline) -> Iterator[bool]:
        """Release the shared lock `use`, and yield whether the cluster has no other user.

        If it has none, no process can become a user within the context. `stop.lock` admits one
        process at a time. Without it, two last users could each mistake the other's check for a
        user, and neither would stop the cluster. To avoid a deadlock, take `start.lock` before
        `stop.lock`, never after it.
        """
        users = self.root / "users"
        with closing(use or FileLock(users)) as mine, exclusive(self.root / "stop.lock", deadline):
            mine.close()
            with closing(FileLock(users)) as last:
                yield self._is_last(last, deadline)

    def _is_last(self, users: FileLock, deadline: Deadline) -> bool:
        """Return whether the cluster has no user, so that we could lock `users` exclusively.

        A failed exclusive lock does not prove that there is a user, because of this race:

        1. We release our shared lock.
        2. A supervisor sees no user, takes the exclusive lock and stops its node.
        3. Our exclusive lock fails, although the cluster has no user.

        A supervisor's exclusive lock also blocks a shared lock; another user's shared lock does
        not. So if the shared lock fails, too, wait until the supervisor has ended.
        """
        while not users.try_exclusive():
            if users.try_shared() or deadline.has_passed:
                return False
            time.sleep(_POLL_S)  # flock can't wait with a deadline
        return True

    def _stop_nodes(self, deadline: Deadline) -> None:
        """Stop all nodes, whoever started them. The caller holds the exclusive lock on `users`.

        Nodes of another Unix user can't be signalled. Without a user of the cluster, their
        supervisors stop them once the caller has released that lock."""
        try:
            for node in self._nodes:
                node.signal(SUPERVISOR, signal.SIGTERM)
        except PermissionError:
            return
        for node in self._nodes:
            self._wait_gone(node, deadline)
        self._stop_started(deadline)
        self._nodes[0].make_archive()

    def _stop_started(self, deadline: Deadline) -> None:
        """Stop the nodes that this process has started. The others may have users.

        A supervisor that has just begun holds no lock, and state.json is that of an earlier one. So
        signal it as a child process."""
        for supervisor in self._supervisors.values():
            supervisor.terminate()
        for number, supervisor in self._supervisors.items():
            try:
                supervisor.wait(deadline.left_ms / 1000)
            except subprocess.TimeoutExpired:
                supervisor.kill()
            self._wait_gone(self._node(number), deadline)
        self._supervisors.clear()

    def _wait_gone(self, node: Node, deadline: Deadline) -> None:
        """Wait until a node has ended; send SIGKILL at the deadline.

        Raise UnavailableError if the node still runs long after SIGKILL, for example because the
        kernel is writing to a disk that hangs."""
        is_killed = False
        while node.is_running:
            if deadline.has_passed and is_killed:
                pids = node.pids()
                raise UnavailableError(
                    "broker_stop_timeout",
                    f"node {node.number} of the embedded broker still runs after SIGKILL ({pids})",
                    hint=f"the disk of `{self.root}` may hang; the processes end when it responds",
                )
            if deadline.has_passed:
                node.signal(BROKER, signal.SIGKILL)
                node.signal(SUPERVISOR, signal.SIGKILL)
                is_killed, deadline = True, Deadline.after_ms(STOP_MS_MAX)
            time.sleep(_POLL_S)  # we can't wait for a child of another process

    def _node(self, number: int) -> Node:
        return self._nodes[number - 1]
