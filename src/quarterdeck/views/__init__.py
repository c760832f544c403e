"""Everything derived from a log: pure functions of its events, the same in any process on any day.

`transcript` is what the page shows, `text` and `markdown` are text for terminals and exports, `acp`
is for editors. `context` (seed 000) and `packets` (seed 002) are protocols of their own; each
package exports every name of its seed. Import from the modules: nothing is exported here.
"""

__all__: list[str] = []
