"""The hub's data in PostgreSQL 15 or newer; needs the extra `postgres`."""

from quarterdeck.hub.postgres.connection import Postgres, connect
from quarterdeck.hub.postgres.file_import import Imported, import_files
from quarterdeck.hub.postgres.schema import STEPS, SchemaFacts, inspect, migrate, refusal
from quarterdeck.hub.postgres.store import PostgresHubStore, open_postgres_store

__all__ = [
    "STEPS",
    "Imported",
    "Postgres",
    "PostgresHubStore",
    "SchemaFacts",
    "connect",
    "import_files",
    "inspect",
    "migrate",
    "open_postgres_store",
    "refusal",
]
