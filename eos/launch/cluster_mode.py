"""Runs with `--deploy-mode cluster`: YARN or Kubernetes starts the driver on one of its machines.

That machine has neither this environment nor the project, so all that the driver needs is sent with
the job. The driver finds it in its working directory:

    eos-KEY.zip     `eos`, imported directly
    eos_packages/   the Python packages that `eos` needs
    eos_project/    the project's `pipelines/`, and the profile as `conf/NAME.yaml`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.config.secrets import secret_variables
from eos.config.variables import says_secret, variables_of
from eos.errors import UsageError
from eos.launch import shipping
from eos.launch.options import Options
from eos.local.java import AVRO_LIMITS
from eos.local.mounts import shared_type
from eos.location import local_path

if TYPE_CHECKING:
    from eos.config.model import PipelineFile, ProfileFile

PROJECT = "eos_project"
_YARN, _KUBERNETES = "yarn", "k8s://"
# How a setting of an environment variable of the driver begins.
_VARIABLE = {_YARN: "spark.yarn.appMasterEnv.", _KUBERNETES: "spark.kubernetes.driverEnv."}
_PYTHON, _DRIVER_JAVA = "spark.pyspark.python", "spark.driver.extraJavaOptions"
_UPLOADS = "spark.kubernetes.file.upload.path"
# Packages of a run's optional features. They are sent if the profile uses the feature.
_TELEMETRY = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
_LINEAGE, _MSK = ("openlineage-python",), ("aws-msk-iam-sasl-signer-python",)


@dataclass(frozen=True, slots=True)
class ClusterMode:
    """The files and settings of a run whose driver is in the cluster."""

    manager: str  # "yarn" or "k8s://"
    pipelines: Sequence[PipelineFile]
    profile: ProfileFile
    profile_path: Path
    ship_folder: Path

    def job(self) -> list[str]:
        """Return the job's arguments that name files, by their paths on the driver's machine."""
        root = self.pipelines[0].project_root
        found = [str(Path(PROJECT) / each.path.relative_to(root)) for each in self.pipelines]
        return [*found, "--profile", str(Path(PROJECT) / self._profile_name)]

    def archives(self, *, with_packages: bool) -> Iterator[str]:
        """Yield the archives that the driver's machine unpacks, in the form of `--archives`."""
        if with_packages:
            roots = (*shipping.OF_DRIVER, *_optional(self.profile))
            yield f"{shipping.packages_zip(roots)}#{shipping.PACKAGES}"
        root = self.pipelines[0].project_root
        profile = {self._profile_name: self.profile_path}
        yield f"{shipping.project_zip(self.ship_folder, root, profile)}#{PROJECT}"

    def settings(self, given: Mapping[str, str], *, with_packages: bool) -> dict[str, str]:
        """Return Spark's settings for the driver's process. `given` has the user's settings, which
        are kept."""
        prefix = _VARIABLE[self.manager]
        path = f"{prefix}PYTHONPATH"
        found = {f"{prefix}{name}": value for name, value in self._variables()}
        found.update(given)
        if with_packages:
            packages = filter(None, [shipping.PACKAGES, given.get(path)])
            found[path] = os.pathsep.join(packages)
        found.setdefault(_PYTHON, os.environ.get("PYSPARK_PYTHON") or workers_python())
        found.setdefault("spark.app.name", self.pipelines[0].name)  # else that of the script
        found[_DRIVER_JAVA] = " ".join([*AVRO_LIMITS, given.get(_DRIVER_JAVA, "")]).strip()
        return found

    @property
    def _profile_name(self) -> str:
        return f"conf/{self.profile_path.name}"

    def _variables(self) -> Iterator[tuple[str, str]]:
        """Yield the environment variables that pipeline files and profile use, except secrets.

        Spark shows its settings in its web UI, so a secret must be a file of the machines, or an
        environment variable that the cluster sets."""
        files = [*(each.path for each in self.pipelines), self.profile_path]
        names = {name for file in files for name in variables_of(file.read_text("utf-8"))}
        for name in sorted(names - secret_variables(self.profile)):
            # A secret may also be in a key such as `headers`, or in a comment.
            if name in os.environ and not says_secret(name):
                yield name, os.environ[name]


def cluster_mode(
    master: str,
    settings: Mapping[str, str],
    options: Options,
    pipelines: Sequence[PipelineFile],
    profile: ProfileFile,
) -> ClusterMode:
    """Return the run in the cluster. Raise UsageError, with the remedy, if it can't be one.

    `settings` are Spark's, of profile and command line."""
    from eos.config.load import profile_path

    manager = next((each for each in _VARIABLE if master.startswith(each)), None)
    if manager is None:
        raise UsageError(
            "deploy_mode_cluster",
            f"--deploy-mode cluster is not possible on {master}: only YARN and Kubernetes can "
            "start a Python driver",
            hint="remove `--deploy-mode` (or `spark.submit.deployMode`): in client mode the driver "
            "runs here, and the executors run in the cluster",
        )
    if profile.kafka.bootstrap is None:
        raise UsageError(
            "cluster_mode_embedded_broker",
            f"profile {profile.name!r} has no kafka.bootstrap, but the embedded broker of this "
            "machine can't serve a driver in the cluster",
            hint="set `kafka: {bootstrap: ...}` in the profile to brokers that all machines reach, "
            "or remove `--deploy-mode cluster`",
        )
    if options.demo_crash:
        raise UsageError(
            "cluster_mode_demo_crash",
            "--demo-crash can't be used with --deploy-mode cluster: it kills a driver of this "
            "machine",
            hint="remove one of the two",
        )
    _require_shared_root(profile)
    if manager == _KUBERNETES and _UPLOADS not in settings:
        raise UsageError(
            "cluster_mode_upload_path",
            "--deploy-mode cluster on Kubernetes sends pipeline, profile and packages through the "
            f"folder {_UPLOADS}, which is not set",
            hint=f"set {_UPLOADS} in the profile's `spark.conf`, such as s3a://bucket/uploads; or "
            "use an image with all of it (docs/kubernetes.md)",
        )
    root = pipelines[0].project_root
    path = profile_path(options.profile, root)
    return ClusterMode(manager, pipelines, profile, path, profile.local_root / "ship")


def _require_shared_root(profile: ProfileFile) -> None:
    """Raise UsageError if the state root is a folder of this machine only."""
    root = profile.state.root
    path = local_path(root)
    if path is None or shared_type(path):
        return
    raise UsageError(
        "cluster_mode_local_state",
        f"profile {profile.name!r} has the state root {root}, a folder of this machine, but with "
        "--deploy-mode cluster each start of the driver may be on another one",
        hint="set `state: {root: ...}` to a URI such as hdfs://namenode:8020/eos or "
        "s3a://bucket/eos (docs/checkpoints.md), and `deployment:` to a name that no other running "
        "instance has; or remove `--deploy-mode cluster`",
    )


def workers_python() -> str:
    """Return the command of the Python version for which the sent packages are built."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _optional(profile: ProfileFile) -> Iterator[str]:
    """Yield the packages of the optional features that the profile uses."""
    logins = [profile.kafka.security, *(each.security for each in profile.clusters.values())]
    yield from _TELEMETRY if profile.opentelemetry else ()
    yield from _LINEAGE if profile.openlineage else ()
    uses_iam = any(each and each.mechanism == "AWS_MSK_IAM" for each in logins)
    yield from _MSK if uses_iam else ()
