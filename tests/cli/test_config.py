"""The hub's configuration: errors have a line and the correct form."""

import os
import re
import stat
from pathlib import Path

import pytest

from quarterdeck.cli.commands import up
from quarterdeck.cli.config import (
    HubConfig,
    hub_options,
    load_config,
    others_who_write,
    parse_config,
)
from quarterdeck.errors import SettingsInvalid
from quarterdeck.http.origins import DEFAULT_PORT

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "use" / "hub.example.toml"


def test_the_documented_example_is_valid_and_shows_the_defaults() -> None:
    config = parse_config(EXAMPLE.read_text(encoding="utf-8"), str(EXAMPLE))
    default = HubConfig()
    assert (config.server, config.approvals, config.log) == (
        default.server,
        default.approvals,
        default.log,
    )
    assert config.agents["mine"].args == ("--acp",)
    assert [rule.decision for rule in config.policy.rule] == ["allow", "deny"]


def test_no_file_in_a_project_is_read_as_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    for name in ("hub.toml", ".hub.toml", "quarterdeck/hub.toml", ".config/quarterdeck/hub.toml"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[agents.demo]\ncommand = 'evil'\n", encoding="utf-8")
    monkeypatch.chdir(project)
    for environ in ({}, {"HOME": str(home)}, {"XDG_CONFIG_HOME": str(home)}, {"HOME": ""}):
        assert load_config(environ) == HubConfig()


def test_settings_of_push_and_environment_reach_the_hub(tmp_path: Path) -> None:
    text = (
        "[push]\nservices = ['https://push.example']\n"
        "[environment]\npass_env = ['GITHUB_TOKEN']\n[devices]\nunused_days = 7\n"
        "[agents.x]\ncommand = 'x'\npass_env = ['AWS_*']\n"
    )
    options = hub_options(parse_config(text, "x"), home=tmp_path, environ={})
    assert options.push_services == ("https://push.example",)
    assert options.pass_env == ("GITHUB_TOKEN",)
    assert options.device_unused_seconds == 7 * 86_400
    assert options.agents["x"].pass_env == ("AWS_*",)


def test_the_configuration_itself_is_hidden_from_agents(tmp_path: Path) -> None:
    environ = {"HOME": "/home/me"}
    folder = Path("/home/me/.config/quarterdeck")
    options = hub_options(HubConfig(), home=tmp_path, environ=environ)
    assert options.hidden == (folder,)
    assert options.kept == (folder / "agent.toml",)
    named = Path("/srv/hub.toml")
    options = hub_options(HubConfig(), home=tmp_path, environ=environ, config_file=named)
    assert options.hidden == (folder, named)
    given = {**environ, "QUARTERDECK_HUB_CONFIG": "/etc/qd.toml", "XDG_CONFIG_HOME": "/c"}
    config = parse_config("confine = 'require'\nhide = ['~/.keys', '/run/docker.sock']", "x")
    options = hub_options(config, home=tmp_path, environ=given)
    assert options.confine == "require"
    assert options.hidden[1:] == (
        *(Path("/run/docker.sock"), Path("/c/quarterdeck"), Path("/etc/qd.toml")),
    )


def test_the_documented_example_shows_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    shown = set(re.findall(r"^#? ?(\w+) =", text, re.MULTILINE))
    config = parse_config(text, "x")
    sections = (config.server, config.agents["mine"], config.policy.rule[0])
    for section in (
        *sections,
        config.approvals,
        config.log,
        config.push,
        config.sessions,
        config.editors,
        config.retention,
        config.environment,
        config.devices,
    ):
        assert set(section.__struct_fields__) <= shown | {"rule"}, section


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nport = 'x'", "line 2: server.port must be a whole number, not a text"),
        ("[server]\n\nport = 70000", "line 3: server.port is 70000; use a number from 0"),
        ("[servr]", "line 1: unknown key servr; did you mean server?"),
        ("[server]\nprot = 1", "line 2: unknown key server.prot; did you mean port?"),
        ("[server]\nzzz = 1", "line 2: unknown key server.zzz; known keys: host, port"),
        ("[server]\ntls_cert = 'a'", "server.tls_cert and server.tls_key belong together"),
        ("[agents.x]\nargs = []", "line 1: agents.x needs the key command"),
        ("[agents.x]\ncommand = ' '", "line 2: agents.x.command is empty"),
        ("[agents.x]\nurl = 'x'", "line 2: agents.x.url: 'x' must begin with http://"),
        ("[agents.x]\nurl = 'http://h/'\ncommand = 'y'", "line 3: agents.x has a url and command"),
        ("[agents.x]\nurl = 'http://h/'\nconfine = 'off'", "line 3: agents.x has a url and conf"),
        ("[agents.x]\nurl = 'http://h/'\nsandbox = 'workspace'", "line 3: agents.x has a url and"),
        ("[agents.x]\nurl = 'http://h/'\nheaders = { Host = 'y' }", "line 3: agents.x.headers"),
        ("[agents.x]\nheaders = { A = 'y' }", "line 2: agents.x.headers are sent to a url"),
        ("[telemetry]\nendpoint = 'h:1'", "line 1: telemetry.endpoint is no http or https URL"),
        ("[telemetry]\nheaders = { 'a b' = 'c' }", "telemetry.headers has 'a b', which is no HTTP"),
        ("[editors]\nidle_minutes = 0", "line 2: editors.idle_minutes is 0.0; use a number"),
        ("[agents]\nx = 3", "line 2: agents.x must be a table: [agents.x]"),
        ("[agents.x]\ncommand='a'\nenv={A=1}", "agents.x.env must be a text, not a whole number"),
        ("server = 3", "line 1: server must be a table: [server]"),
        ("[server", "is not TOML: "),
        ("[log]\ndurability = 'no'", "line 2: log.durability cannot be 'no'; use one of normal"),
        ("[approvals]\nexpire_seconds = -1", "line 2: approvals.expire_seconds is below 0"),
        (
            "[retention]\nprompts_days = -1",
            "line 2: retention.prompts_days is -1.0; use a number",
        ),
        ("[sessions]\nidle_agent_minutes = nan", "line 2: sessions.idle_agent_minutes is nan"),
        ("[memory]\nview_mb = 0", "line 2: memory.view_mb is 0; use a number from 1"),
        ("[memory]\nview_mb = -5", "line 2: memory.view_mb is -5"),
        ("[memory]\nview_mb = 1.5", "line 2: memory.view_mb must be a whole number"),
        ("[memory]\nview_bytes = 5", "unknown key memory.view_bytes; did you mean view_mb?"),
        ("[devices]\nunused_days = -1", "line 2: devices.unused_days is below 0"),
        ("[policy]\nrule = 3", "line 2: policy.rule must be tables: [[policy.rule]]"),
        ("[policy]\nreads = true", "line 2: unknown key policy.reads; known keys: rule"),
        (
            "[[policy.rule]]\ndecision = 'deny'\n[[policy.rule]]\ndecision = 'maybe'",
            "line 4: policy.rule.decision cannot be 'maybe'; use one of allow, deny",
        ),
        ("[[policy.rule]]\nreads = true", "line 1: policy.rule needs the key decision"),
        ("confine = 'no'", "line 1: confine cannot be 'no'; use one of on, off, require"),
        ("[agents.x]\ncommand='a'\nconfine='no'", "agents.x.confine cannot be 'no'; use one of"),
        ("hide = ['run']", "line 1: hide: 'run' is not an absolute path; start it with / or ~"),
        ("[projects.x]\nsandbox = 'workspace'", "projects: 'x' is not an absolute path"),
        ("[projects.'/x']\nsandbox = 'all'", "cannot be 'all'; use one of off, workspace"),
        (
            "[agents.x]\ncommand = 'a'\nsandbox_hosts = ['https://x']",
            "line 3: agents.x.sandbox_hosts: 'https://x' is not a host; use a name such as",
        ),
    ],
)
def test_an_error_has_its_line_and_the_correct_form(text: str, message: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"hub\.toml") as refused:
        parse_config(text, "hub.toml")
    assert message in str(refused.value)


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="does not exist"):
        load_config({}, tmp_path / "none.toml")
    with pytest.raises(SettingsInvalid, match="does not exist"):
        load_config({"QUARTERDECK_HUB_CONFIG": str(tmp_path / "none.toml")})


def test_a_default_file_may_be_missing(tmp_path: Path) -> None:
    assert load_config({"HOME": str(tmp_path)}) == HubConfig()
    assert load_config({}) == HubConfig()


def test_the_default_file_is_in_the_configuration_folder(tmp_path: Path) -> None:
    folder = tmp_path / "quarterdeck"
    folder.mkdir()
    (folder / "hub.toml").write_text("[server]\nport = 1", encoding="utf-8")
    assert load_config({"XDG_CONFIG_HOME": str(tmp_path)}).server.port == 1
    (folder / "hub.toml").unlink()
    os.mkfifo(folder / "hub.toml")
    with pytest.raises(SettingsInvalid, match="is not a regular file"):
        load_config({"XDG_CONFIG_HOME": str(tmp_path)})
    (folder / "hub.toml").unlink()
    (folder / "hub.toml").symlink_to(folder / "gone.toml")
    with pytest.raises(SettingsInvalid, match="is not a regular file"):
        load_config({"XDG_CONFIG_HOME": str(tmp_path)})


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsInvalid, match="is not UTF-8"):
        load_config({}, path)
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        load_config({}, tmp_path)


def test_a_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text("[server]\nport = 1", encoding="utf-8")
    path.chmod(0o646)
    with pytest.raises(SettingsInvalid, match="can be changed by other users"):
        load_config({}, path)
    path.chmod(0o664)
    assert load_config({}, path).server.port == 1  # a group for each user is usual
    tmp_path.chmod(0o707)
    with pytest.raises(SettingsInvalid, match="where other users could replace it"):
        load_config({}, path)
    tmp_path.chmod(0o1707)  # as /tmp is
    assert load_config({}, path).server.port == 1
    tmp_path.chmod(0o700)


def test_a_password_in_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text('[database]\nurl = "postgresql://hub:secret@db/q"', encoding="utf-8")
    path.chmod(0o644)
    with pytest.raises(SettingsInvalid, match="can be read by other users") as refused:
        load_config({}, path)
    assert "secret" not in str(refused.value)
    path.chmod(0o600)
    assert load_config({}, path).database.url
    path.write_text('[database]\nurl = "postgresql://hub:${PASSWORD}@db/q"', encoding="utf-8")
    path.chmod(0o644)
    assert load_config({}, path).database.url


def test_a_credential_in_the_arguments_of_an_mcp_server_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "hub.toml"
    path.write_text('[mcp.a]\ncommand = "run"\nargs = ["--token", "abc"]', encoding="utf-8")
    with pytest.raises(SettingsInvalid, match="the argument --token gives a credential") as refused:
        load_config({}, path)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "user", "group", "words"),
    [
        (0o644, 7, 7, None),
        (0o664, 7, 7, None),
        (0o664, 7, 8, "changed by other users"),
        (0o646, 7, 7, "changed by other users"),
        (0o600, 8, 7, "belongs to user 8"),
        (0o644, 0, 0, None),
    ],
)
def test_the_owner_and_the_mode_of_a_file_are_checked(
    mode: int, user: int, group: int, words: str | None
) -> None:
    facts = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, group, 0, 0, 0, 0))
    reason = others_who_write(facts, user=7, group=7)
    assert (reason is None) if words is None else (words in (reason or ""))


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    config = parse_config("[server]\nport = 1\nhost = '::1'", "x")
    options = hub_options(config, home=tmp_path, environ={}, port=0, host=None)
    assert (options.port, options.host) == (0, "::1")


def test_the_help_names_the_usual_port() -> None:
    assert f"default: {DEFAULT_PORT};" in up.parser().format_help()
