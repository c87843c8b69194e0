"""Producer ids as text, for messages and for the ledger."""

from __future__ import annotations

import hashlib

# Ids are any bytes. A ledger record lists over a hundred of them, and a broker limits its size.
TEXT_MAX = 200
_DIGEST_DIGITS = 16


def id_text(producer: bytes) -> str:
    """Return the id as text of at most `TEXT_MAX` characters."""
    return shortened(producer.decode(errors="backslashreplace"))


def shortened(text: str) -> str:
    """Return the text, with a digest in place of its end if it is too long.

    A shortened text is returned unchanged."""
    if len(text) <= TEXT_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{text[: TEXT_MAX - _DIGEST_DIGITS - 3]}...{digest}"
