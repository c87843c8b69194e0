"""A KDC of MIT Kerberos on this machine, and a broker with listeners that log in by it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eos.local.broker_node import HOST, free_ports
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.processes import end_with_parent
from support.docs import ROOT
from support.security import Authority
from support.waiting import WAIT_S_MAX, wait_until

REALM, NAME = "EOS.TEST", "localhost"
PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
SESSION_MS = 2_000
SKEW_S = 3_600
_FAKETIME = "faketime/libfaketime.so.1"
_UNPACKED = ROOT / ".eos" / "kerberos"  # by tests/kerberos/install.sh
_PATH = os.pathsep.join(str(_UNPACKED / "usr" / place) for place in ("bin", "sbin"))
# `stale` has a principal whose key the KDC has changed since.
LISTENERS = {
    "KERBEROS": "SASL_PLAINTEXT",
    "SECURE": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "STALE": "SASL_PLAINTEXT",
}

_KRB5 = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {address}
 }}
"""
_KDC = """\
[kdcdefaults]
 kdc_listen = {address}
 kdc_tcp_listen = {address}
[realms]
 {realm} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
[dbmodules]
 {realm} = {{
  db_library = db2
 }}
 db_module_dir = {plugins}
"""


def find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_PATH)


def missing() -> list[str]:
    found = [each for each in PROGRAMS if find(each) is None]
    return found if _library(_FAKETIME) else [*found, "libfaketime"]


def _library(pattern: str) -> Path | None:
    places = (_UNPACKED / "usr/lib", Path("/usr/lib"))
    return next((path for place in places for path in sorted(place.glob(f"*/{pattern}"))), None)


@dataclass
class Kdc:
    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    def create(self) -> None:
        names = {"realm": REALM, "address": f"{HOST}:{self.port}", "folder": self.folder}
        names["plugins"] = str(_library("krb5/plugins/kdb") or "/usr/lib/krb5/plugins/kdb")
        self.config.write_text(_KRB5.format(**names))
        (self.folder / "kdc.conf").write_text(_KDC.format(**names))
        self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)

    def environment(self, **more: str) -> dict[str, str]:
        libraries = {str(each) for each in _UNPACKED.glob("*/lib/*-linux-gnu")}
        libraries |= {str(each) for each in _UNPACKED.glob("lib/*-linux-gnu")}
        own = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries)),
        }
        return {**os.environ, **own, **more}

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [find(program) or program, *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def admin(self, *words: str) -> None:
        self.run("kadmin.local", *words)

    def add(self, principal: str, *options: str) -> Path:
        """Return a keytab with the key of a new principal."""
        self.admin("addprinc", "+requires_preauth", "-randkey", *options, principal)
        keytab = self.folder / f"{principal.replace('/', '-')}.keytab"
        self.admin("ktadd", "-k", str(keytab), principal)
        return keytab

    def start(self, **environment: str) -> None:
        with (self.folder / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [find("krb5kdc") or "krb5kdc", "-n"],
                env=self.environment(**environment),
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
            )
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "kdc.log").read_text()
        with socket.socket() as sock:
            return sock.connect_ex((HOST, self.port)) == 0

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(WAIT_S_MAX)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def with_another_clock(self) -> Iterator[None]:
        """Its clock is an hour ahead."""
        self.stop()
        self.start(LD_PRELOAD=str(_library(_FAKETIME)), FAKETIME=f"+{SKEW_S}s")
        try:
            yield
        finally:
            self.stop()
            self.start()


@dataclass(frozen=True)
class KerberosKafka:
    kdc: Kdc
    broker: EmbeddedKafka
    ca: Authority
    keytab: Path  # of the principal eos
    addresses: Mapping[str, str]

    @property
    def principal(self) -> str:
        return f"eos@{REALM}"


@contextmanager
def kerberos_kafka(folder: Path) -> Iterator[KerberosKafka]:
    """A KDC and a broker; this process and its children find the KDC."""
    (folder / "kdc").mkdir()
    kdc = Kdc(folder / "kdc", free_ports(1)[0])
    kdc.create()
    kdc.start()
    ca = Authority.made(folder / "ca")
    (ca.folder / "names").write_text(f"subjectAltName=DNS:{NAME}\n")
    ca.sign("broker")
    keytabs = {name: kdc.add(f"{name}/{NAME}") for name in ("kafka", "stale")}
    kdc.admin("cpw", "-randkey", f"stale/{NAME}")
    names = list(LISTENERS)
    ports = free_ports(len(names))
    addresses = {name: f"{NAME}:{port}" for name, port in zip(names, ports, strict=True)}
    broker = EmbeddedKafka(folder / "broker", config=_config(addresses, keytabs, ca))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(kdc.config))
        patch.setenv("KRB5CCNAME", f"FILE:{folder}/no-cache")
        with patch.context() as of_java:
            of_java.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
            broker.start()
        try:
            yield KerberosKafka(kdc, broker, ca, kdc.add("eos"), addresses)
        finally:
            broker.stop()
            kdc.stop()


def _config(
    addresses: Mapping[str, str], keytabs: Mapping[str, Path], ca: Authority
) -> dict[str, Any]:
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
    found = {
        "listeners": ",".join(f"{name}://{at}" for name, at in addresses.items()),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        # So a run shows that the broker has the principal as `User:eos`.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:eos;User:brief",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ca.folder / "broker.pem"),
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
    }
    for name in LISTENERS:
        service = "stale" if name == "STALE" else "kafka"
        at = f"listener.name.{name.lower()}"
        found |= {
            f"{at}.sasl.enabled.mechanisms": "GSSAPI",
            f"{at}.sasl.kerberos.service.name": service,
            f"{at}.gssapi.sasl.jaas.config": (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
                f'storeKey=true isInitiator=false keyTab="{keytabs[service]}" '
                f'principal="{service}/{NAME}@{REALM}";'
            ),
        }
    return found
