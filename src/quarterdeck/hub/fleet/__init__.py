"""All machines of a hub: each has a runner, and the hub shows them as one (`Fleet`).

`Fleet` is between everything in the hub and the runners: `Hub.runner` is a `Fleet`, also if there
is one machine only. It finds the machine that a call is for, and passes the call on:

    the hub's own machine   to the runner that the hub was given, as it is: a `RemoteRunner`
                            (`runner/link`), or a `Runner` in the same process
    another machine         to its `MachineRunner`: commands over the link, or kept while it is away
                            (`waiting`); logs from the hub's copy (`replica`); ids and what
                            contains them translated on the way (`translated`, `identifiers`)

The host streams of several machines become one (`host_stream`), and so do their decisions
(`decisions`) and their envelopes (`envelopes`). `machines` and `machine_links` are how a machine
joins and connects.
"""

__all__: list[str] = []
