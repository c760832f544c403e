"""The page, built from `web/` and served from memory."""

__all__: list[str] = []
