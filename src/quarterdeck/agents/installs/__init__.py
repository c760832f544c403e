"""Installing agents: into folders of their own, verified, switched in one step."""

from quarterdeck.agents.installs.folder import (
    AgentFolder,
    InstalledAgent,
    InstallFolder,
    is_folder_name,
)
from quarterdeck.agents.installs.installer import (
    LATEST,
    Installer,
    changes_between,
    this_platform,
)
from quarterdeck.agents.installs.progress import InstallProgress, OnProgress
from quarterdeck.agents.installs.tools import NODE_VERSION, Toolbox

__all__ = [
    "LATEST",
    "NODE_VERSION",
    "AgentFolder",
    "InstallFolder",
    "InstallProgress",
    "InstalledAgent",
    "Installer",
    "OnProgress",
    "Toolbox",
    "changes_between",
    "is_folder_name",
    "this_platform",
]
