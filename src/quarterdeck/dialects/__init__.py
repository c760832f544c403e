"""Other vocabularies for the same log."""
