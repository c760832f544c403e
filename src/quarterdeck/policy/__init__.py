"""What a tool call would do, how risky it is, and what the owner's rules decide about it."""

__all__: list[str] = []
