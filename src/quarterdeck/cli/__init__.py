"""The `quarterdeck` command.

`main` names the commands, `dispatch` runs one, `commands/<name>.py` has its command line,
`terminal/` is what people see and type. The other modules do the work.
"""

__all__: list[str] = []
