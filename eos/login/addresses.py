"""The rules for addresses to which a login may send a secret."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_URL = re.compile(r"https?://[^\s/@?#\"\\]+(/[^\s?#\"\\]*)?")


def is_url(text: str) -> bool:
    """Return whether the text is an http or https URL with no user, a valid port or none, and no
    query."""
    try:
        return _URL.fullmatch(text) is not None and urlsplit(text).port != 0
    except ValueError:
        return False


def is_own_machine(host: str) -> bool:
    """Return whether requests to this host never leave this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_encrypted(url: str) -> bool:
    """Return whether nobody on the network can read requests to this URL."""
    return url.startswith("https:") or is_own_machine(urlsplit(url).hostname or "")
