"""Quarterdeck: run coding agents and command them from anywhere."""

from quarterdeck._version import __version__

__all__ = ["__version__"]
