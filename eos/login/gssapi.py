"""The parts of MIT Kerberos's library that a login needs, by ctypes.

The Python package `gssapi` has no wheels for Linux, so each machine would need a compiler and
headers. The library itself, `libgssapi_krb5`, is a small system package. Calls release the
interpreter's lock, and some ask the KDC.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any

LIBRARY = "libgssapi_krb5.so.2"
_KERBEROS = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"  # the OID of the mechanism
_PRINCIPAL = _KERBEROS + b"\x01"  # the OIDs of the two kinds of names
_SERVICE = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04"
_INITIATE = 1
_FLAGS = 2 | 4 | 8 | 32  # mutual authentication, no replay, in sequence, integrity
_CONTINUE = 1
_ERRORS = 0xFFFF0000  # the bits of a status that is an error
_BY_LIBRARY, _BY_MECHANISM = 1, 2  # the kinds of a status


class GssError(Exception):
    """A call failed. `minor` is Kerberos's error number, as in `krb5.h`."""

    def __init__(self, minor: int, text: str) -> None:
        super().__init__(text)
        self.minor = minor


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Pair(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Pair)))


_ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "gss_import_name": (POINTER(_Buffer), POINTER(_Oid), POINTER(c_void_p)),
    "gss_release_name": (POINTER(c_void_p),),
    "gss_release_buffer": (POINTER(_Buffer),),
    "gss_release_cred": (POINTER(c_void_p),),
    "gss_delete_sec_context": (POINTER(c_void_p), c_void_p),
    "gss_acquire_cred_from": (
        *(c_void_p, c_uint32, POINTER(_OidSet), c_int, POINTER(_Store)),
        *(POINTER(c_void_p), c_void_p, c_void_p),
    ),
    "gss_init_sec_context": (
        *(c_void_p, POINTER(c_void_p), c_void_p, POINTER(_Oid), c_uint32, c_uint32, c_void_p),
        *(POINTER(_Buffer), c_void_p, POINTER(_Buffer), c_void_p, c_void_p),
    ),
    "gss_wrap": (c_void_p, c_int, c_uint32, POINTER(_Buffer), c_void_p, POINTER(_Buffer)),
    "gss_unwrap": (c_void_p, POINTER(_Buffer), POINTER(_Buffer), c_void_p, c_void_p),
    "gss_display_status": (c_uint32, c_int, c_void_p, POINTER(c_uint32), POINTER(_Buffer)),
}


@cache
def _library() -> ctypes.CDLL:
    """Load the library. Raise OSError if this machine has none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        found = ctypes.util.find_library("gssapi_krb5")
        if found is None:
            raise
        library = ctypes.CDLL(found)
    for name, arguments in _ARGUMENTS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = c_uint32, (POINTER(c_uint32), *arguments)
    return library


def _oid(text: bytes) -> _Oid:
    return _Oid(len(text), text)


def _buffer(data: bytes) -> _Buffer:
    return _Buffer(len(data), ctypes.cast(c_char_p(data), c_void_p))


def _call(name: str, *arguments: Any) -> int:
    """Return the status of a call. Raise GssError if it failed."""
    minor = c_uint32()
    status = int(getattr(_library(), name)(byref(minor), *arguments))
    if status & _ERRORS:
        number = ctypes.c_int32(minor.value).value
        text = _text(minor.value, _BY_MECHANISM) if number else _text(status, _BY_LIBRARY)
        raise GssError(number, text)
    return status


def _text(status: int, kind: int) -> str:
    minor, more, found = c_uint32(), c_uint32(), _Buffer()
    _library().gss_display_status(byref(minor), status, kind, None, byref(more), byref(found))
    return _taken(found).decode("utf-8", "replace")


def _taken(found: _Buffer) -> bytes:
    """Return the bytes of a buffer that the library has allocated, and release it."""
    data = ctypes.string_at(found.value, found.length) if found.value else b""
    _library().gss_release_buffer(byref(c_uint32()), byref(found))
    return data


class _Handle:
    """An object of the library, which is released with this one."""

    release: str
    more: tuple[Any, ...] = ()

    def __init__(self) -> None:
        self.handle = c_void_p()

    def __del__(self) -> None:
        if self.handle:
            getattr(_library(), self.release)(byref(c_uint32()), byref(self.handle), *self.more)


class _Name(_Handle):
    release = "gss_release_name"

    def __init__(self, text: str, kind: bytes) -> None:
        super().__init__()
        _call("gss_import_name", _buffer(text.encode()), _oid(kind), byref(self.handle))


class Credential(_Handle):
    """Tickets of a principal. `store` says where they are from, and where they are kept.

    With a keytab in `store`, the library asks the KDC for a first ticket, and for the next one
    after half of its lifetime."""

    release = "gss_release_cred"

    def __init__(self, principal: str, store: Mapping[str, str]) -> None:
        super().__init__()
        pairs = [(key.encode(), value.encode()) for key, value in store.items()]
        elements = (_Pair * len(pairs))(*(_Pair(*pair) for pair in pairs))
        mechanisms = _OidSet(1, ctypes.pointer(_oid(_KERBEROS)))
        name, kept = _Name(principal, _PRINCIPAL), _Store(len(pairs), elements)
        _call(
            "gss_acquire_cred_from",
            *(name.handle, 0, byref(mechanisms), _INITIATE, byref(kept)),
            *(byref(self.handle), None, None),
        )


class Context(_Handle):
    """The client's side of a login at a service such as `kafka@broker-1`."""

    release, more = "gss_delete_sec_context", (None,)

    def __init__(self, credential: Credential, service: str) -> None:
        super().__init__()
        self._credential, self._service = credential, _Name(service, _SERVICE)
        self.is_complete = False

    def step(self, received: bytes = b"") -> bytes:
        """Return the next bytes for the service. The first step may ask the KDC for a ticket."""
        sent = _Buffer()
        status = _call(
            "gss_init_sec_context",
            *(self._credential.handle, byref(self.handle), self._service.handle),
            *(byref(_oid(_KERBEROS)), _FLAGS, 0, None, _buffer(received), None),
            *(byref(sent), None, None),
        )
        self.is_complete = not status & _CONTINUE
        return _taken(sent)

    def wrap(self, data: bytes) -> bytes:
        wrapped = _Buffer()
        _call("gss_wrap", self.handle, 0, 0, _buffer(data), None, byref(wrapped))
        return _taken(wrapped)

    def unwrap(self, data: bytes) -> bytes:
        found = _Buffer()
        _call("gss_unwrap", self.handle, _buffer(data), byref(found), None, None)
        return _taken(found)
