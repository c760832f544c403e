"""Permission requests: rules, the inbox, cards, the index of decisions."""

__all__: list[str] = []
