"""The image of `conf/deploy/image`, built and run by podman or docker from this checkout's files.

Its base is pulled where that is possible; else it is made of Debian's packages (mmdebstrap). The
build reads this machine's settings for pip and its certificates, as a person's build would.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import release
from support.docs import ROOT

PULLED, MADE = "docker.io/library/debian:bookworm-slim", "localhost/eos-debian:bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv", "openjdk-17-jre-headless")
BUILD_S_MAX = 3600  # bounds, not measures
RUN_S_MAX = 1200
_SETTINGS = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/java/cacerts")
# What podman can't raise by itself without a user session.
_ULIMITS = ("--ulimit", "nofile=10000:10000", "--ulimit", "nproc=10000:10000")
# As the manifests and the compose file ask: nothing but these folders can be written.
_LOCKED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")
_WRITABLE = ("--tmpfs", "/tmp:mode=1777", "--tmpfs", "/state:mode=1777")


@dataclass(frozen=True)
class Engine:
    """podman or docker, with the options that each of their commands needs."""

    program: str

    @classmethod
    def found(cls) -> Engine | None:
        """The engine of this machine; None if none can run a container."""
        for program in ("podman", "docker"):
            engine = cls(program)
            if shutil.which(program) and engine.call("info").returncode == 0:
                return engine
        return None

    def call(self, *words: str, timeout: float = BUILD_S_MAX) -> subprocess.CompletedProcess[str]:
        """Run a command of the engine. Its output is in `stdout`, all of it."""
        # crun, podman's first choice, needs control groups that a container on its own may lack.
        own = ("--runtime", "runc") if self.program == "podman" and shutil.which("runc") else ()
        return subprocess.run(
            [self.program, *own, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )

    def build(self, folder: Path, tag: str) -> None:
        """Build the image from a release of this checkout, with the embedded broker."""
        release.build(folder)
        for each in (ROOT / "conf" / "deploy" / "image").iterdir():
            shutil.copy(each, folder)
        words = ["build", "--network", "host", *_ULIMITS, "--tag", tag]
        if self.program == "podman":  # docker's build has no volumes
            for path in filter(lambda path: Path(path).is_file(), _SETTINGS):
                words += ["--volume", f"{path}:{path}:ro"]
        words += ["--build-arg", f"BASE={self._base(folder)}", "--build-arg", "FETCH="]
        words += ["--file", str(folder / "Containerfile"), str(folder)]
        done = self.call(*words)
        assert done.returncode == 0, done.stdout[-5000:]

    def run(
        self, tag: str, options: Sequence[str], *words: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a container that may write only to /tmp and /state."""
        given = (*_ULIMITS, *_LOCKED, *_WRITABLE, *options)
        return self.call("run", "--rm", *given, tag, *words, timeout=RUN_S_MAX)

    def _base(self, folder: Path) -> str:
        if self.call("pull", PULLED).returncode == 0:
            return PULLED
        if self.call("image", "inspect", MADE).returncode:
            made = folder.parent / "base.tar"
            options = ["--quiet", "--variant=essential", f"--include={','.join(PACKAGES)}"]
            subprocess.run(["mmdebstrap", *options, "bookworm", str(made)], check=True)
            done = self.call("import", str(made), MADE)
            assert done.returncode == 0, done.stdout
            made.unlink()
        return MADE
