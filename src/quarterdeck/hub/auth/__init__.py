"""Who may use a hub: devices, scopes, pairing, tokens, and the guard in front of everything."""

__all__: list[str] = []
