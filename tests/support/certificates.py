"""Certificates for tests of TLS, made by openssl's command: authorities, and what they sign.

Each is a folder with `ca.pem`, and for each name that it signed NAME.crt, NAME.key and NAME.pem,
which is both.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Authority:
        folder.mkdir(parents=True)
        made = cls(folder)
        subject = f"/CN={folder.name}"
        files = ("-keyout", folder / "ca.key", "-out", made.certificate)
        _openssl("req", "-x509", *_KEY, *files, "-days", "30", "-subj", subject)
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def sign(self, name: str, days: int = 30) -> Path:
        """Certificate and key in one file. With -1 days it has expired before it is used."""
        request, key, signed = (self.folder / f"{name}.{end}" for end in ("csr", "key", "crt"))
        _openssl("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        own = ("-CA", self.certificate, "-CAkey", self.folder / "ca.key", "-CAcreateserial")
        names = ("-extfile", self.folder / "names")
        _openssl("x509", "-req", "-in", request, *own, "-days", str(days), *names, "-out", signed)
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + signed.read_text())
        return both


def _openssl(*words: str | Path) -> None:
    assert shutil.which("openssl"), "the tests of TLS need the command openssl"
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
