"""The logs of a host: numbering, repair, storing, publishing, reading."""
