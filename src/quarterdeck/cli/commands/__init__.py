"""One module per command, found by its name.

    parser()    its command line
    load()      imports what the command does, and returns it: a function of the parsed arguments

A module here imports nothing but `arguments` at its top: completion imports all of them, and the
help of a command must not wait for a hub to be imported. `dispatch` calls `load` while Ctrl-C is
held back.
"""

__all__: list[str] = []
