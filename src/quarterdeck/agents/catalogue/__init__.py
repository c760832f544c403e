"""The catalogue of agents: a data file for each, and the entries of an ACP registry."""

from quarterdeck.agents.catalogue.collection import AgentCatalogue, built_in_entries
from quarterdeck.agents.catalogue.entry import (
    BinaryArchive,
    CatalogueEntry,
    NpmPackage,
    Platform,
    PypiPackage,
    Quirk,
    SignIn,
    parse_entry,
)
from quarterdeck.agents.catalogue.registry import parse_registry
from quarterdeck.agents.catalogue.registry_cache import RegistryCache

__all__ = [
    "AgentCatalogue",
    "BinaryArchive",
    "CatalogueEntry",
    "NpmPackage",
    "Platform",
    "PypiPackage",
    "Quirk",
    "RegistryCache",
    "SignIn",
    "built_in_entries",
    "parse_entry",
    "parse_registry",
]
