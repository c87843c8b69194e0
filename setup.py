"""Is the wheel for one platform? Yes, if the native library was built into the package before.

`python -m eos.native.build --into eos/native/lib` does that. Everything else is in pyproject.toml.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HAS_LIBRARY = any((Path(__file__).parent / "eos" / "native" / "lib").glob("*.so"))


class PlatformDistribution(Distribution):
    """A distribution for one platform."""

    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    """A wheel for any Python 3, because the library knows nothing of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(
    cmdclass={"bdist_wheel": Wheel},
    distclass=PlatformDistribution if HAS_LIBRARY else Distribution,
)
