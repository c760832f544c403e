"""The sessions of a host: opened, recorded, recovered and ended."""
