"""How does `eos doctor` check whether other machines can reach Spark's ports without a login?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING

from eos.inspect.check import Check, checked, note, ok
from eos.spark.session import AUTHENTICATE, unless_set

if TYPE_CHECKING:
    from eos.config.model import ProfileFile

_ADDRESSES = ("spark.driver.bindAddress", "spark.driver.host")
_LOCAL_IP = "SPARK_LOCAL_IP"


def check_exposed_ports(profile: ProfileFile) -> Iterator[Check]:
    """Yield checks of Spark's ports, from the settings of profile and environment.

    Spark's own configuration files are not read, although they may change these settings.
    """
    master, conf = profile.spark.master, profile.spark.conf
    if master.startswith("local"):
        yield from checked("spark ports", lambda: _on_this_machine(conf))
        return
    yield from checked("spark ports", lambda: _authentication(master, conf))
    yield from checked("spark ui", lambda: _ui(conf))


def _on_this_machine(conf: Mapping[str, str]) -> Iterator[Check]:
    label = {key: conf[key] for key in _ADDRESSES if key in conf}
    if _LOCAL_IP in os.environ:
        label[_LOCAL_IP] = os.environ[_LOCAL_IP]
    reached = [f"{key} is {value}" for key, value in label.items() if not _is_loopback(value)]
    if reached:
        reason = f"{', '.join(reached)}: other machines can reach Spark's ports"
        yield note(
            "spark ports", reason, f"remove {' and '.join(_keys(reached))}, to use 127.0.0.1"
        )
    else:
        yield ok("spark ports", "RPC and UI listen at 127.0.0.1")


def _authentication(master: str, conf: Mapping[str, str]) -> Check:
    value = conf.get(AUTHENTICATE) or unless_set(master).get(AUTHENTICATE)
    if value == "true":
        return ok("spark ports", f"{AUTHENTICATE} is true")
    reason = (
        f"{AUTHENTICATE} is not true for master {master}: a process that reaches a port of the "
        "driver or an executor can run code as the pipeline's user"
    )
    if unless_set(master):
        return note("spark ports", reason, f"remove {AUTHENTICATE} from the profile")
    remedy = f"set {AUTHENTICATE} and its secret on each machine: docs/security.md"
    return note("spark ports", reason, remedy)


def _ui(conf: Mapping[str, str]) -> Check:
    if conf.get("spark.ui.enabled") == "false":
        return ok("spark ui", "it is off")
    if conf.get("spark.ui.filters"):
        return ok("spark ui", f"spark.ui.filters is {conf['spark.ui.filters']}")
    if _is_loopback(os.environ.get(_LOCAL_IP, "")):
        return ok("spark ui", "it listens at 127.0.0.1")
    risk = "Spark's UI listens at all addresses of the driver's machine, without a login"
    remedy = "set `spark.ui.enabled: false` or `spark.ui.filters` in the profile"
    return note("spark ui", risk, remedy)


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def _keys(reached: list[str]) -> list[str]:
    return [each.partition(" ")[0] for each in reached]
