"""The `quarterdeck` command: `main` finds the verb, and each verb has a module of its own."""

__all__: list[str] = []
