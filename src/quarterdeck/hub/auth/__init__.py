"""Authentication: devices and their scopes, tokens, pairing, and the guard of every request."""
