"""How does `eos doctor` check this machine: versions, Java, jars, folders, disk space, ports?"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import eos
from eos.cache import cache_root
from eos.inspect.check import Check, checked, failed, note, ok
from eos.inspect.exposed_ports import check_exposed_ports
from eos.launch.native_library import last_failure
from eos.launch.spark import find_spark
from eos.local.broker_probe import silent
from eos.local.cluster_status import status_of
from eos.local.jars import is_present, jar_folder, of_broker, read_lock
from eos.local.java import find_java
from eos.location import local_path
from eos.native import library
from eos.offline import is_offline

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

_FREE_BYTES_MIN = 1_000_000_000
_INSTALL = "`./spark-submit.sh --help` installs missing packages"


def machine(profile: ProfileFile, pipeline: PipelineFile | None = None) -> Iterator[Check]:
    """Yield the checks of this machine, for all runs or for those of `pipeline`.

    Neither a broker nor Spark is started. The only network access is a connection to each bootstrap
    address.
    """
    yield from checked("python", _python)
    yield from checked("packages", _packages)
    yield from checked("native", _native)
    yield from checked("java", _java)
    yield from checked("spark", _spark)
    yield from checked("jars", lambda: _jars(profile, pipeline))
    yield from checked("state root", lambda: _state(profile))
    yield from checked("cache", lambda: _folder("cache", cache_root()))
    yield from checked("host name", lambda: _host(profile))
    yield from check_exposed_ports(profile)
    yield from checked("ports", lambda: _ports(profile))


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 10) <= sys.version_info < (3, 14):
        return failed(
            "python", f"{version}; 3.10 to 3.13 are supported", "set PYTHON=/path/to/python3"
        )
    return ok("python", f"{version}, eos {eos.__version__}")


def _packages() -> Iterator[Check]:
    """Check that all required packages are installed, in the pinned version where one is pinned."""
    damaged, count = [], 0
    try:
        required = metadata.requires("spark-eos") or ()
    except metadata.PackageNotFoundError:
        yield note("packages", "not checked, because spark-eos runs without being installed")
        return
    for text in required:
        needed = re.match(r"([\w.-]+)(?:==([\w.]+))?(.*)", text)
        if needed is None or "extra ==" in text:
            continue
        name, exact = needed[1], needed[2]
        count += 1
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            damaged.append(f"{name} is missing")
            continue
        if exact and found != exact:
            damaged.append(f"{name} is {found}, not {exact}")
    if damaged:
        yield failed("packages", "; ".join(damaged), _INSTALL)
    else:
        yield ok("packages", f"all {count}, pyspark {metadata.version('pyspark')}")


def _native() -> Check:
    """Check that the native library can be loaded. Without it, runs are right but slower."""
    found = library.status()
    if found.library is not None:
        return ok("native", f"{found.origin}: {found.path}")
    if library.is_disabled():
        return note("native", found.problem, f"unset {library.DISABLED} to use it")
    problem = last_failure() or found.problem
    return note(
        "native",
        f"not used, so runs are slower: {problem}",
        "the first run tries to build it; to do it now: eos fetch",
    )


def _java() -> Check:
    found = find_java()
    return ok("java", f"{found.version} ({found.origin}: {found.runtime or found.home})")


def _spark() -> Check:
    found = find_spark()
    origin = "SPARK_HOME" if found.is_installed else "of this environment"
    return ok("spark", f"{found.version} ({origin}: {found.home})")


def _jars(profile: ProfileFile, pipeline: PipelineFile | None) -> Check:
    """Check that all required jars are present, those of Delta only for a pipeline that has tables.

    Missing jars are a note if a run may download them, because it then does."""
    sets = {*find_spark().jar_sets(with_delta=pipeline is not None and pipeline.has_delta)}
    if profile.kafka.bootstrap is None:
        sets.update(of_broker())
    folder = jar_folder()
    required = {jar.name: jar for jar in read_lock() if jar.purpose in sets}
    missing = [jar for jar in required.values() if not is_present(jar, folder)]
    if not missing:
        return ok("jars", f"all {len(required)} in {folder}")
    megabytes = sum(jar.size_bytes for jar in missing) / 1e6
    missing_jars = f"{len(missing)} of {len(required)} are not in {folder} yet: {megabytes:.0f} MB"
    if is_offline():
        return failed("jars", f"{missing_jars}, and a run may not download them", "eos fetch")
    return note("jars", missing_jars, "the first run downloads them; to do it now: eos fetch")


def _state(profile: ProfileFile) -> Iterator[Check]:
    root = local_path(profile.state.root)
    if root is None:
        reason = f"{profile.state.root}: not checked, because it is not a folder of this machine"
        yield note("state root", reason, "docs/checkpoints.md lists the settings of its client")
        root = profile.local_root
    yield from _folder("state root", root)


def _folder(subject: str, path: Path) -> Iterator[Check]:
    """Check that a folder can be written, or can be created by the first run."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    try:  # try it: /proc and read-only disks reject new folders whatever the permissions are
        tempfile.TemporaryDirectory(prefix=".eos-", dir=existing).cleanup()
    except OSError as error:
        how = "can't be written" if existing == path.absolute() else "can't be created"
        reason = f"{path} {how}: {error.strerror} ({existing})"
        yield failed(
            subject, reason, "give this user write permission there, or set another folder"
        )
        return
    free = shutil.disk_usage(existing).free
    space = f"{path}: {free / 1e9:.1f} GB free"
    if free < _FREE_BYTES_MIN:
        yield failed(subject, space, "free at least 1 GB")
    else:
        yield ok(subject, space)


def _host(profile: ProfileFile) -> Check:
    """Check that this machine's host name resolves. Spark needs that, unless SPARK_LOCAL_IP or a
    local master gives it an address."""
    name = socket.gethostname()
    if profile.spark.master.startswith("local") or os.environ.get("SPARK_LOCAL_IP"):
        return ok("host name", f"{name}: not looked up, because Spark has an address")
    try:
        address = socket.gethostbyname(name)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label is longer than 63 bytes
        cause = getattr(error, "strerror", "") or error
        reason = f"{name} does not resolve ({cause}): Spark will not start"
        return failed(
            "host name", reason, "add it to /etc/hosts, or export SPARK_LOCAL_IP=127.0.0.1"
        )
    return ok("host name", f"{name} is {address}")


def _ports(profile: ProfileFile) -> Iterator[Check]:
    """Check whether each bootstrap address accepts connections, or the embedded broker runs."""
    if profile.kafka.bootstrap is None:
        found = status_of(profile.local_root / "broker")
        place = (
            f"runs at {found.bootstrap}" if found.bootstrap else "stopped: the next run starts it"
        )
        if found.down and found.bootstrap:
            down = ", ".join(map(str, found.down))
            yield failed("ports", f"node {down} of {found.nodes} is down", "eos broker start")
        yield ok("ports", f"embedded broker {found.version}, {place}")
        return
    answers = profile.kafka.bootstrap
    dead = silent(answers)
    problems = "; ".join(f"{address}: {reason}" for address, reason in dead.items())
    if len(dead) == len(answers):
        remedy = f"is kafka.bootstrap of profile {profile.name!r} right, or is a firewall between?"
        yield failed("ports", problems, remedy)
    elif dead:
        yield note("ports", problems, "the others respond; a run needs one of them to connect")
    else:
        yield ok("ports", f"{', '.join(answers)} {'listens' if len(answers) == 1 else 'listen'}")


def audit(profile: ProfileFile) -> Iterator[Check]:
    """Yield the check that the audit table can be read."""
    yield from checked("audit", lambda: _audit(profile))


def _audit(profile: ProfileFile) -> Check:
    if not profile.audit.transactions:
        return note("audit", "off: `audit: {transactions: false}` in the profile")
    from eos.audit.updater import location_of  # late: it imports pyarrow, which takes time

    location = location_of(profile)
    if location is None:
        reason = "there is no table: the state root is neither a local folder nor a bucket of S3"
        remedy = "set `audit: {transactions: false}` in the profile to remove this note"
        return note("audit", reason, remedy)
    if not location.files("_delta_log"):
        return ok("audit", f"{location}: the first run creates it")
    from eos.audit.table import TransactionsTable

    rows = TransactionsTable(location).query("SELECT count(*) AS n FROM transactions")
    return ok("audit", f"{location}: {rows[0]['n']:,} rows")
