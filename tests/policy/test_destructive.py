"""Commands and tools that destroy, delete, deploy or publish have a high risk."""

from __future__ import annotations

import pytest

from quarterdeck.policy import Call, assess_risk


@pytest.mark.parametrize(
    "line",
    [
        "terraform destroy -auto-approve",
        "terraform apply -destroy",
        "tofu destroy",
        "pulumi destroy --yes",
        "kubectl delete pod x",
        "kubectl -n prod delete deployment/web",
        "helm uninstall web",
        "git push --force",
        "git push -f origin feature",
        "git push origin +main",
        "npm publish",
        "pnpm publish --access public",
        "cargo publish",
        "twine upload dist/*",
        "uv publish",
        "gem push x.gem",
        "gh repo delete me/x --yes",
        "gh release create v1",
        "docker system prune -af",
        "docker push me/x",
        "docker compose down -v",
        "aws s3 rm s3://x --recursive",
        "aws s3 sync . s3://x --delete",
        "aws ec2 terminate-instances --instance-ids i-1",
        "aws cloudformation delete-stack --stack-name x",
        "gcloud compute instances delete x",
        "az group delete -n x",
        "fly deploy",
        "vercel deploy --prod",
        "make deploy",
        "npm run deploy",
        "npm run db:drop",
        "yarn deploy:prod",
        "just publish",
        "rake db:drop",
        "./deploy.sh",
        "scripts/release.py 1.0",
        "psql -c 'DROP TABLE users'",
        "psql prod -c 'delete from users'",
        "sqlite3 app.db 'drop table users;'",
        "mysql -e 'TRUNCATE TABLE users'",
        "echo 'DROP DATABASE app' | psql",
        "psql <<'EOF'\nDROP TABLE users;\nEOF",
        "mongosh --eval 'db.dropDatabase()'",
        "dropdb app",
        "redis-cli flushall",
        "rsync -a --delete a/ b/",
        "rm -rf dist",
        "sudo terraform destroy",
        "sh -c 'kubectl delete ns prod'",
        "cd infra && terraform destroy",
        "ansible-playbook site.yml",
    ],
)
def test_a_command_that_destroys_or_publishes_has_a_high_risk(line: str) -> None:
    risk = assess_risk(Call("Bash", {"command": line}))
    assert risk.level in ("high", "critical"), risk
    assert risk.reason.isprintable()


@pytest.mark.parametrize(
    "line",
    [
        "terraform plan",
        "kubectl get pods",
        "kubectl rollout status deployment/web",
        "helm list",
        "npm test",
        "npm run build",
        "gh release list",
        "gh pr list",
        "docker ps",
        "aws s3 ls",
        "grep -r 'DROP TABLE' .",
        "rg delete src",
        "cat deploy.sh",
        "ls release",
        "pytest tests/test_delete.py",
        "python delete_me_not.py",
        "psql -c 'select * from dropped'",
        "git log --grep publish",
    ],
)
def test_an_ordinary_command_that_mentions_a_verb_has_none(line: str) -> None:
    assert assess_risk(Call("Bash", {"command": line})).level in ("low", "medium")


def test_the_reason_names_what_destroys() -> None:
    risk = assess_risk(Call("Bash", {"command": "terraform destroy -auto-approve"}))
    assert risk.reason == "Destroys, deletes, deploys or publishes: terraform destroy"


@pytest.mark.parametrize(
    "call",
    [
        Call("mcp__github__delete_repository", {"repo": "x"}),
        Call("deployApp", {"target": "prod"}),
        Call("mcp__db__run", {"query": "DROP TABLE users"}, kind="search"),
        Call("x", {"path": "a"}, kind="delete"),
    ],
)
def test_a_tool_that_destroys_or_publishes_has_a_high_risk(call: Call) -> None:
    assert assess_risk(call).level == "high"
