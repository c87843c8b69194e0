"""The download of missing jars, by several processes of Ivy in parallel.

Ivy is Spark's client for Maven repositories, and pyspark contains it. The repository is
`EOS_MAVEN_REPOSITORY`, else the mirror of central in the user's Maven settings, else Ivy's default.

Each complete file is verified and moved into the cache at once. If a run is interrupted in any way,
its complete jars remain, and the next run downloads only the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from eos import log_lines
from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.local.jars import Jar
from eos.local.java import find_java, trust_options
from eos.local.processes import end_with_parent
from eos.offline import require_online
from eos.plural import plural

REPOSITORY = "EOS_MAVEN_REPOSITORY"
SIDE_BY_SIDE = 4
DOWNLOAD_MS_MAX = 15 * 60_000
_POLL_S = 0.1
_WORK_AGE_S_MAX = 24 * 3600
_LINE_MAX = 1_000  # log lines are cut: the expressions below take quadratic time for a long line

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven" defaultConflictManager="all"/>
  <timeout-constraints>
    <timeout-constraint name="short" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <caches defaultCacheDir={cache}
          artifactPattern="[organisation]__[artifact]-[revision].[ext]"/>
  <resolvers>
    <ibiblio name="maven" m2compatible="true" usepoms="false" useMavenMetadata="false"
             checksums="" timeoutConstraint="short"{root}/>
  </resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="eos" module="jars"/>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""


def download(jars: Sequence[Jar], folder: Path) -> None:
    """Download all jars into `folder`.

    If some fail, raise UnavailableError with the causes of the first ones."""
    megabytes = sum(jar.size_bytes for jar in jars) / 1e6
    require_online(
        f"{plural(len(jars), 'jar')} ({megabytes:.0f} MB) must be downloaded to {folder}",
        f"copy the jars from the same folder of another machine to {folder}",
    )
    log_lines.write(f"downloading {len(jars)} jars ({megabytes:.0f} MB) into {folder}")
    started = time.monotonic()
    _forget_old_work(folder)
    with tempfile.TemporaryDirectory(prefix="work-", dir=folder) as name:
        work = Path(name)
        failures, is_late = _run(jars, work, folder)
        missing = [jar for jar in jars if not (folder / jar.name).exists()]
        if missing:
            raise _failure(missing, failures, work, is_late=is_late)
    log_lines.write(f"downloaded and verified in {time.monotonic() - started:.1f} s")


def resolve(coordinates: Sequence[str], work: Path) -> dict[str, Path]:
    """Download jars into `work` without a check of their checksums. Return their paths.

    `coordinates` are texts such as `group:artifact:version`. `eos.local.relock` uses this to write
    the checksums into the lock file."""
    jars = [Jar("", coordinate, 0, "") for coordinate in coordinates]
    with _processes(jars, work) as running:
        for process in running:
            process.wait()
    return {jar.coordinate: path for jar in jars for path in work.glob(f"ivy-*/{jar.name}")}


def repository() -> str | None:
    """Return the repository address that the user chose, or None for Ivy's default."""
    chosen = os.environ.get(REPOSITORY)
    if chosen:
        return chosen
    try:
        tree = ET.parse(Path.home() / ".m2" / "settings.xml")  # noqa: S314 - the user's own
    except (OSError, ET.ParseError):
        return None
    for mirror in tree.iter():
        if mirror.tag.rpartition("}")[2] == "mirror":
            fields = {part.tag.rpartition("}")[2]: (part.text or "").strip() for part in mirror}
            if fields.get("url") and fields.get("mirrorOf") in {"central", "*", "external:*"}:
                return fields["url"]
    return None


def _run(jars: Sequence[Jar], work: Path, folder: Path) -> tuple[dict[str, str], bool]:
    """Run Ivy, and store each jar in `folder` once it is complete and its checksum is right.

    Return a text for each jar with a wrong checksum, and whether the time limit ended the download.
    """
    failures: dict[str, str] = {}
    deadline = Deadline.after_ms(DOWNLOAD_MS_MAX)
    with _processes(jars, work) as running:
        is_running = True
        while is_running and not deadline.has_passed:
            # Check for running processes before storing jars. In the other order, a jar that
            # arrives just before the last process ends would be missed.
            is_running = any(process.poll() is None for process in running)
            _accept_jars(jars, work, folder, failures)
            time.sleep(_POLL_S if is_running else 0)  # Ivy reports no progress of single files
    return failures, is_running


def _accept_jars(jars: Sequence[Jar], work: Path, folder: Path, failures: dict[str, str]) -> None:
    for jar in jars:
        # Ivy writes NAME.part and renames it when it is complete.
        arrived = next(work.glob(f"ivy-*/{jar.name}"), None)
        if jar.name in failures or arrived is None:
            continue
        sha256 = hashlib.sha256(arrived.read_bytes()).hexdigest()
        if sha256 == jar.sha256:
            arrived.replace(folder / jar.name)  # atomic: other processes never see a partial file
        else:
            failures[jar.name] = f"its sha256 is {sha256}, not {jar.sha256}"
            arrived.unlink()


@contextlib.contextmanager
def _processes(jars: Sequence[Jar], work: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start several Ivy processes, each with jars of about the same total size; yield them."""
    by_size = sorted(jars, key=lambda jar: -jar.size_bytes)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(min(SIDE_BY_SIDE, len(jars))):
            share = by_size[number::SIDE_BY_SIDE]
            running.append(_ivy(share, work, number))
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def _ivy(jars: Sequence[Jar], work: Path, number: int) -> subprocess.Popen[bytes]:
    root = repository()
    home = work / f"ivy-{number}"
    home.mkdir()
    settings, module = home / "settings.xml", home / "ivy.xml"
    settings.write_text(
        _SETTINGS.format(
            cache=quoteattr(str(home)), root=f" root={quoteattr(root)}" if root else ""
        ),
        encoding="utf-8",
    )
    module.write_text(
        _MODULE.format(dependencies="".join(_dependency(jar) for jar in jars)), encoding="utf-8"
    )
    java = find_java()
    command = [
        *(str(java.binary), "-XX:TieredStopAtLevel=1", *trust_options(java)),
        *("-cp", _class_path()),
        *("org.apache.ivy.Main", "-settings", str(settings), "-ivy", str(module)),
    ]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - the launcher has one thread here
        )


def _dependency(jar: Jar) -> str:
    group, artifact, version = jar.coordinate.split(":")
    return f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false"/>'


def _class_path() -> str:
    spec = importlib.util.find_spec("pyspark")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise UnavailableError(
            "jar_client_missing",
            "jars can't be downloaded: pyspark, which contains the client, is not installed",
            hint="run `./spark-submit.sh` once: it installs pyspark",
        )
    jars = Path(spec.origin).parent / "jars"
    return os.pathsep.join(
        str(path) for pattern in ("ivy-*.jar", "commons-cli-*.jar") for path in jars.glob(pattern)
    )


def _failure(
    missing: Sequence[Jar], failures: dict[str, str], work: Path, *, is_late: bool = False
) -> UnavailableError:
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in work.glob("ivy-*/log"))
    logs = "\n".join(line[:_LINE_MAX] for text in texts for line in text.splitlines())
    lines = []
    for jar in missing[:5]:
        artifact = jar.coordinate.split(":")[1]
        addresses = re.findall(rf"\S+://\S*/{re.escape(artifact)}-\S+\.jar", logs)
        address = addresses[-1] if addresses else "an unknown address"
        lines.append(f"  {jar.coordinate} from {address}")
        if jar.name in failures:
            lines.append(f"    {failures[jar.name]}")
    if len(missing) > 5:
        lines.append(f"  and {len(missing) - 5} more")
    if is_late:
        lines.append(f"  not complete after {DOWNLOAD_MS_MAX // 60_000} minutes")
    elif len(missing) > len(failures):
        lines.append(f"  first error of the client: {_first_error(logs)}")
    count, details = len(missing), "\n".join(lines)
    return UnavailableError(
        "jar_download_failed",
        f"{count} jars could not be downloaded\n{details}",
        hint="check the network and start again: downloaded jars are kept. Or set "
        f"{REPOSITORY} to the URL of a Maven repository that this machine can reach (or add a "
        "mirror of central to ~/.m2/settings.xml)",
        jars=[jar.coordinate for jar in missing],
    )


def _first_error(logs: str) -> str:
    pattern = r"^.*?((?:\w+Exception|Server access error|Connection \w+).*)$"
    found = re.search(pattern, logs, re.MULTILINE)
    return found.group(1).strip() if found else "the repository does not have these jars"


def _forget_old_work(folder: Path) -> None:
    """Delete work folders of killed downloads. After a day, no process can still use one."""
    for path in folder.glob("work-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _WORK_AGE_S_MAX:
                shutil.rmtree(path, ignore_errors=True)
