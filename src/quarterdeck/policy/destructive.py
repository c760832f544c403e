"""Commands and tools that destroy, delete, deploy or publish, found by their verbs; pure.

Most of them belong to programs that work on something far away (a cluster, an account, a registry),
where a mistake cannot be undone. `destructive_words` finds them in three ways:

- a verb among the words of a program that is known to have it: `terraform destroy`;
- a verb among the first words of any program or script: `make deploy`, `npm run db:drop`;
- a statement of SQL in any argument: `psql -c 'DROP TABLE users'`.

`destructive_name` finds a verb in the name of a tool: `mcp__github__delete_repository`. They only
rate the risk: a false alarm costs a second look.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from quarterdeck.policy.simple_command import names

_VERBS: Final = names(
    """destroy delete drop purge prune wipe nuke erase uninstall terminate decommission
    deprovision deploy publish unpublish release yank rollback teardown evict drain truncate
    revoke"""
)
"""Verbs that count for any program, as a whole word of one of its first words."""
_OF_PROGRAM: Final[Mapping[str, frozenset[str]]] = {
    program: names(verbs)
    for programs, verbs in {
        "terraform tofu terragrunt": "destroy apply import taint untaint force-unlock rm",
        "pulumi": "destroy up cancel refresh import",
        "cdk cdktf sst amplify copilot": "destroy deploy remove bootstrap",
        "serverless sls": "remove deploy",
        "kubectl oc k9s": "delete drain cordon evict replace apply scale rollout patch set",
        "helm": "uninstall delete upgrade install rollback",
        "docker podman nerdctl": "rm rmi prune kill push remove down",
        "docker-compose podman-compose": "down rm kill push",
        "npm pnpm yarn bun": "publish unpublish deprecate",
        "cargo": "publish yank",
        "gem": "push yank",
        "twine uv poetry flit hatch": "upload publish",
        "gh glab hub": "delete release merge close archive transfer",
        "aws gcloud az doctl linode-cli flyctl fly heroku vercel netlify wrangler firebase railway"
        " supabase gsutil": "rm rb delete destroy deploy remove terminate",
        "dropdb dropuser": "",
        "redis-cli": "flushall flushdb del",
        "ansible-playbook ansible": "",
        "vagrant multipass lxc incus virsh": "destroy delete remove undefine purge",
        "zfs zpool lvremove vgremove pvremove": "destroy",
        "rclone": "delete purge sync deletefile rmdir rmdirs cleanup",
    }.items()
    for program in programs.split()
}
"""Verbs of programs that work on something far away. No verbs: the program itself is one."""
_SQL: Final = re.compile(
    r"\b(drop\s+(table|database|schema|index|view|user|role|column|trigger|function|collection)"
    r"|truncate\s+(table\s+)?\w|delete\s+from\b|alter\s+table\s+\S{1,200}\s+drop\b"
    r"|drop(database|collection|index)\b|delete(many|one)\b)",
    re.IGNORECASE,
)
_SQL_MENTION: Final = re.compile(r"drop|truncate|delete", re.IGNORECASE)
_OPTIONS: Final = re.compile(
    r"--(delete|purge|prune|destroy|force-delete|delete-\w+|remove-source-files|drop)(=.*)?"
)
_DATABASES: Final = names(
    """psql mysql mariadb sqlite3 sqlcmd mongosh mongo cockroach clickhouse
    clickhouse-client duckdb bq snowsql cqlsh usql"""
)
_LISTED: Final = frozenset({"release", "rollout"})
_LISTING: Final = frozenset({"list", "ls", "view", "show", "status", "history", "download"})
"""What follows a word of `_LISTED` that only names what is looked at: `gh release list`."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_FIRST: Final = 4  # words of a command among which a verb is expected
_MOST_WORDS: Final = 64
_MOST_TEXT: Final = 4_000
_RUNNERS: Final = names(
    """make just task npm pnpm yarn bun npx bunx rake invoke nox tox fab composer gradle
    gradlew mvn mvnw cargo bin rails artisan manage.py mix ant bazel nx turbo lerna"""
)
_READING: Final = names(
    """echo printf grep egrep fgrep rg ag ack cat ls find fd less head tail man which type
    sed awk jq wc sort uniq cut tr diff test [ cd pwd tee touch mkdir cp mv ln stat file git"""
)
"""Programs whose words are files or texts."""


def destructive_words(program: str, arguments: Sequence[str]) -> str | None:
    """Return the words of a command that destroy or publish something; None if there are none."""
    if program in _READING:
        return None
    verbs = _OF_PROGRAM.get(program)
    if verbs == frozenset() or _VERBS.intersection(_parts(program)):
        return program
    words = [each for each in arguments[:_MOST_WORDS] if not each.startswith("-")]
    found = _verb(program, words, verbs)
    if found is None:
        found = next((each for each in arguments[:_MOST_WORDS] if _OPTIONS.fullmatch(each)), None)
    return _sql(arguments) if found is None else f"{program} {found}"


def _verb(program: str, words: Sequence[str], verbs: frozenset[str] | None) -> str | None:
    for position, word in enumerate(words):
        is_listed = word in _LISTED and _LISTING.intersection(words[position + 1 : position + 2])
        if is_listed:
            continue
        if verbs is not None and (word in verbs or word.partition("-")[0] in verbs):
            return word
        if position < _FIRST and "." not in word and "/" not in word:
            is_task = program in _RUNNERS or verbs is not None or word in _VERBS
            if is_task and _VERBS.intersection(_parts(word)):
                return word
    return None


def destructive_name(name: str) -> bool:
    """Return whether the name of a tool has a verb that destroys or publishes."""
    return len(name) <= _MOST_TEXT and bool(_VERBS.union({"remove"}).intersection(_parts(name)))


def destructive_text(text: str) -> bool:
    """Return whether a text, such as the query of a tool, has a statement of SQL that deletes."""
    return bool(_SQL_MENTION.search(text[:_MOST_TEXT]) and _SQL.search(text[:_MOST_TEXT]))


def deletes_in_database(line: str, programs: Sequence[str]) -> bool:
    """Return whether a line has a client of a database and a statement that deletes."""
    return not _DATABASES.isdisjoint(programs) and destructive_text(line)


def _sql(arguments: Sequence[str]) -> str | None:
    for each in arguments[:_MOST_WORDS]:
        if " " in each and _SQL_MENTION.search(each[:_MOST_TEXT]):
            found = _SQL.search(each[:_MOST_TEXT])
            if found is not None:
                return found[0]
    return None


def _parts(word: str) -> list[str]:
    """Return the parts of a name: `db:drop`, `delete_repository`, `deployApp`."""
    return [part.lower() for part in _WORD.findall(word[:200])]
