"""Options and words with which a program writes files, runs programs or loads code; data.

A pattern such as `git diff*` is written by a person who thinks of reading a diff, and
`git diff --output=FILE` writes a file. So a pattern allows what is listed here only if it spells
it: `git diff --output=*` does. Programs that are not in the table are allowed as the owner wrote
them.

The table has one line for each program, or for a program and its subcommand (`git grep`), which
then applies to the words behind the subcommand, or behind `--` (`npm --`). What an entry may
contain:

| written      | meaning                                                                          |
| ------------ | -------------------------------------------------------------------------------- |
| `--output`   | a long option, also abbreviated (`--out`) and with a value (`--output=x`)         |
| `-o`         | a letter, also in a cluster (`-uo`) and with a value (`-ox`)                      |
| `-exec`      | an option of several letters behind one dash, as find has                         |
| `~kt`        | letters that take a value: what follows them in a cluster is not an option        |
| `+color`     | a long option that is harmless, though it abbreviates one that acts               |
| `SHELL=`     | an argument that sets a variable; `=` alone: any variable                         |
| `foreach`    | a subcommand or another word of its own                                           |
| `+` or `@`   | any word that begins with this character                                          |
| `ext::`      | any word that begins with this text; it ends in `:` or `,`                        |
| `%dashes`    | one dash or several: `-script-shell` is `--script-shell`                          |
| `%exact`     | the same, and options are never abbreviated                                       |
| `%before`    | options come before the first operand: what follows belongs to another program   |
| `%bundle`    | the first word is a cluster of letters without a dash, as in `tar xf`             |
| `%always`    | `--` does not end the options                                                     |
| `%abbreviated` | subcommands may be abbreviated: `npm exe` is `npm exec`                         |
| `!install`   | a subcommand that is harmless, though it abbreviates one that acts                |
| `%shelled`   | arguments reach a shell: they must not contain what it expands                    |
| `%relative`  | a path that is not relative acts: it may be a script that is not of the project   |
| `%listed`    | every option acts but `+run`, `+format=json` and `~t`; paths as with `%relative`  |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quarterdeck.policy.simple_command import names

_PACKAGE_SCRIPTS: Final = """--script-shell --shell --prefix --node-options --userconfig
    --globalconfig --call --git --editor --viewer --node-gyp --onload-script --registry --cafile
    --cache --proxy --https-proxy --init-module --dir --location --logs-dir --tmp --global
    --pack-destination --nodedir --python --browser --scope --store-dir --modules-dir --config-dir
    --allow-scripts --allow-git --allow-remote --allow-file --allow-directory
    --dangerously-allow-all-scripts --cwd --use-yarnrc --modules-folder --npmrc-auth-file --config
    -C -g ~w
    exec x dlx explore edit config set init create publish unpublish deprecate owner access token
    login adduser add-user hook team link ln install-test it sit cit install-ci-test
    clean-install-test pkg innit author c set-script
    !t !i !in !ins !inst !insta !instal !install !isntall !add !ci !un !s !se
    +json +if-present +workspaces +silent +production +offline +coverage +loglevel +verbose
    %dashes %shelled %abbreviated %relative"""
_TEST_RUNNER: Final = """+coverage +no-coverage +watch +no-watch +watch-all +no-watch-all +silent
    +verbose +quiet +bail +no-bail +ci +color +colors +no-color +no-colors +run +run-in-band
    +max-workers +min-workers +workers +test-name-pattern +test-path-pattern +test-path-patterns
    +test-path-ignore-patterns +test-timeout +timeout +pass-with-no-tests +find-related-tests
    +only-changed +changed +only-failures +last-failed +force-exit +exit +detect-open-handles +grep
    +fgrep +invert +grep-invert +parallel +no-parallel +jobs +retries +retry +slow +shard +only
    +headless +headed +single-run +max-warnings +port +mode +help +version +list +list-tests
    +show-config +no-cache +expand +allow-only +forbid-only +forbid-pending +check-leaks +recursive
    +sort +json +no-stack-trace +log-heap-usage +hide-skipped-tests +dry-run +concurrency
    +test-concurrency +test-only +trace-warnings +no-emit +strict +pretty +max-failures +repeat-each
    +fail-fast +serial +match +files +use-stderr +ext +if-present
    +reporter=dot +reporter=spec +reporter=list +reporter=line +reporter=min +reporter=tap
    +reporter=default +reporter=verbose +reporter=basic +reporter=json +reporter=nyan
    +reporter=progress +reporter=tree +reporter=github +reporters=default
    +test-reporter=dot +test-reporter=spec +test-reporter=tap +format=stylish +format=compact
    +format=json +format=unix +browser=chromium +browser=firefox +browser=webkit
    +browsers=ChromeHeadless +project=chromium +project=firefox +project=webkit
    ~tgibvwqsjxknhV %listed %always"""
"""What a script gets from `npm test -- …`: which program it runs is not known, so only options are
harmless that are so for every usual one. `-e`, `-p`, `--reporter x` run or load code in some."""
_COMPILER: Final = """-o --output -wrapper -fplugin -B -specs -Wl, -Wp, -Wa, -Xlinker
    -Xassembler -Xpreprocessor -save-temps -dumpdir -MF -MD -load -Xclang"""
_CARGO_BUILD: Final = "--target-dir --artifact-dir --out-dir"
_CONTAINERS: Final = """exec cp rm rmi kill push load import save export commit prune swarm stack
    plugin volume login"""
_CONTAINER_OPTIONS: Final = """-v -u --volume --mount --volumes-from --privileged --cap-add
    --security-opt --device --pid --network --net --ipc --uts --userns --user --entrypoint
    --env-file --add-host --cgroup-parent --cidfile --runtime --group-add --sysctl --tmpfs
    ~ehlmnpw"""
_COMPOSE: Final = (
    "-f --file --project-directory --env-file exec run rm kill cp push --volumes -v ~p"
)
ACTING: Final[Mapping[str, str]] = {
    # ---- files and text
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from %always",
    "fd": "-x -X --exec --exec-batch ~edtESjgo",
    "sort": "-o -T --output --compress-program --temporary-directory --files0-from ~ktS",
    "tree": "-o -R --output ~LPIH",
    "date": "-s --set --file ~dfr",
    "rg": "--pre --hostname-bin --search-zip -z --pre-glob ~ABCegfjmtTrMdE",
    "ag": "--pager ~ABCGgm",
    "ack": "--pager --output --files-from --ackrc ~ABCgm",
    "less": "-o -O -k --log-file --LOG-FILE --lesskey-file --lesskey-src --lesskey-content +",
    "more": "+",
    "man": "-P -C -H -T -X --pager --config-file --html --gxditview -l --local-file -M --manpath",
    "vi": "-c -S -s -u --cmd -w -W +",
    "tar": """--to-command --checkpoint-action --use-compress-program --info-script
        --new-volume-script --rsh-command --rmt-command --index-file --directory --transform
        --absolute-names --overwrite --delete --remove-files --extract --get --create --append
        --update -F -I -C -P -x -c -r -u --unlink-first --recursive-unlink
        --exclude-from --files-from -T ~fKNbHV %bundle""",
    "zip": "-T --unzip-command -m --move --test ~ntbx",
    "unzip": "-o -d -x ~P",
    "cpio": "-F -I -O -i -p --rsh-command --file --extract --pass-through --make-directories",
    "split": "--filter -a ~blnC",
    "csplit": "-f --prefix",
    "shuf": "-o --output ~ni",
    "xxd": "-r -p ~clgso",
    "base64": "-o --output",
    "openssl": "-out -keyout -engine -provider -config -writerand",
    "diff": "--output -o ~UCIFxXWD",
    "patch": "-o -d -r -B -i --output --directory --reject-file --input --get",
    "sed": "-i -f --in-place --file ~el",
    "awk": "-f -i -l -E -o -d -p -D --file --include --load --exec --dump-variables --profile"
    " --pretty-print --debug -W ~Fve",
    "yq": "-i --inplace -s --split-exp --from-file --output-format-file ~po",
    "dc": "-e -f --expression --file",
    "file": "-C --compile ~mfFPe",
    "nm": "--plugin",
    "ss": "-D -K --diag --kill ~fFA",
    "xmllint": "--output -o --shell --load-trace",
    "iconv": "-o --output",
    "dos2unix": "-n -o",
    "pandoc": "-o --output -F --filter -L --lua-filter --pdf-engine --data-dir --extract-media",
    "dot": "-o -O",
    "install": "--strip-program -t --target-directory",
    "cp": "--target-directory -t",
    "mv": "--target-directory -t",
    # ---- programs that run others
    "env": "-S -C -u -i --split-string --chdir --unset --ignore-environment --argv0 =",
    "xargs": "-a --arg-file --process-slot-var --open-tty ~nPLdEsI %before",
    "parallel": "--arg-file -a --joblog --results --sshlogin -S --tmpdir --profile -J",
    "watch": "-x --exec ~n %before",
    "time": "-o -a -p --output --append ~f %before",
    "script": "-c --command -O -B -T --log-out --log-io --log-timing",
    "strace": "-o -E --output",
    "ltrace": "-o -F --output",
    "gdb": "-x -ex -ix -iex -eval-command -command -cd --command --eval-command --init-command"
    " --args -p",
    "entr": "-r -s",
    "ssh": "-o -F -E -D -L -R -J -W -w -S -I -i ~bcBemOpQl",
    "scp": "-o -F -S -D -J -i ~cPl",
    "sftp": "-o -F -S -D -b -s -J -i ~cPlRB",
    "rsync": """-e --rsh --rsync-path --daemon --config --server --log-file --write-batch
        --only-write-batch --backup-dir --temp-dir -T --delete --remove-source-files --files-from
        --dparam ~fMB""",
    "curl": """-o -O -K -T -D -c --output --remote-name --remote-name-all --config --upload-file
        --dump-header --cookie-jar --output-dir --create-dirs --trace --trace-ascii --stderr
        --netrc-file --unix-socket --proxy -x --preproxy --doh-url --libcurl --etag-save --hsts
        --alt-svc --data-binary --data --data-raw --data-urlencode --form -F -d --json -b --cookie
        --remote-header-name -J --quote -Q --expand-output --expand-config --expand-data
        --expand-upload-file --ssl-sessions --engine --cert -E --key --write-out
        -w ~AHmruXyYzCPt +proto +progress-bar +http1.1 +http2 +compressed""",
    "wget": """-O -o -a -P -i -e --output-document --output-file --append-output --directory-prefix
        --input-file --execute --config --use-askpass --post-data --post-file --body-file
        --save-cookies --warc-file --rejected-log -x --force-directories --recursive -r -m --mirror
        --use-server-timestamps ~tTwQUA""",
    "nc": "-e -c -l --exec --sh-exec --lua-exec ~wpsiqx",
    # ---- commands of shells
    "printf": "-v",
    "command": "-p %before",
    "print": "-v -z -s -S",
    # ---- git
    "git": """-c -C -p --paginate --config-env --exec-path --git-dir --work-tree --namespace
        --super-prefix --attr-source --upload-pack
        difftool mergetool filter-branch filter-repo config daemon instaweb web--browse
        send-email credential fast-import shell upload-pack receive-pack upload-archive hook gui
        citool gitk for-each-repo maintenance fsmonitor--daemon remote-ext remote-fd svn p4
        cvsserver cvsimport archimport request-pull imap-send http-backend bugreport
        merge-index merge-one-file credential-store credential-cache fast-export index-pack mailinfo
        mailsplit checkout-index send-pack fetch-pack http-push http-fetch cvsexportcommit
        interpret-trailers unpack-file mergetool--lib difftool--helper submodule--helper
        bisect--helper upload-archive--writer credential-cache--daemon pack-objects diagnose
        %before""",
    "git diff": "--output --ext-diff -O --textconv --no-index",
    "git log": "--output --ext-diff -O --textconv ~nGSL",
    "git show": "--output --ext-diff -O --textconv ~nGSL",
    "git whatchanged": "--output --ext-diff -O --textconv",
    "git reflog": "--output --ext-diff -O expire delete",
    "git stash": "--output --ext-diff -O --textconv drop clear",
    "git diff-tree": "--output --ext-diff -O --textconv",
    "git diff-index": "--output --ext-diff -O --textconv",
    "git diff-files": "--output --ext-diff -O --textconv",
    "git range-diff": "--output --ext-diff -O",
    "git format-patch": "--output --output-directory -o --ext-diff -O ~nv",
    "git blame": "--contents ~LCM",
    "git grep": "-O --open-files-in-pager -f --ext-grep --textconv --no-index ~eABCm",
    "git cat-file": "--textconv --filters",
    "git archive": "-o --output --exec --remote --add-file --add-virtual-file",
    "git bundle": "create",
    "git bisect": "run",
    "git submodule": "foreach add",
    "git rebase": "-x --exec -i --interactive --edit-todo -s -X --strategy ~CS",
    "git merge": "-s --strategy -F --file ~mS",
    "git cherry-pick": "--strategy -e --edit ~mSX",
    "git am": "-i --interactive --directory --patch-format",
    "git apply": "--directory --unsafe-paths --build-fake-ancestor",
    "git clone": """-c -u --config --upload-pack --template --separate-git-dir --recurse-submodules
        --recursive ext:: --reference --server-option ~bjo""",
    "git fetch": "--upload-pack --refmap ext:: ~jo",
    "git pull": "--upload-pack -s --strategy -r ext:: ~jXo",
    "git push": "--receive-pack --exec --force -f --delete -d --mirror --prune --force-with-lease"
    " --force-if-includes ext:: ~o",
    "git ls-remote": "--upload-pack --exec --server-option ext:: ~o",
    "git help": "-w --web",
    "git read-tree": "--index-output",
    "git remote": "add set-url",
    "git worktree": "remove",
    "git branch": "-D -d -M -m -f --delete --force --move --edit-description",
    "git tag": "-d -f --delete --force -F --file -u -s ~mn",
    "git reset": "--hard",
    "git clean": "-f -x -X --force -e",
    "git checkout": "-f --force --orphan -B",
    "git switch": "-f --force --discard-changes -C",
    "git commit": "--no-verify -n ~mCcuFtS",
    "git init": "--template --separate-git-dir",
    "git notes": "-F --file",
    "git show-ref": "--exclude-existing",
    "git shortlog": "--output ~nw",
    "git update-index": "--index-info --force-remove --fsmonitor-valid",
    "gh": "alias extension ext api auth secret ssh-key gpg-key codespace config",
    "gh repo": "delete create clone fork sync edit archive rename",
    "gh release": "delete create upload download edit",
    "gh pr": "merge close",
    "gh issue": "delete close transfer",
    "gh run": "delete cancel rerun download",
    "gh workflow": "run enable disable",
    # ---- packages and scripts
    "npm": _PACKAGE_SCRIPTS,
    "npm --": _TEST_RUNNER,
    "pnpm": _PACKAGE_SCRIPTS,
    "pnpm test": _TEST_RUNNER,
    "pnpm run": _TEST_RUNNER,
    "yarn": _PACKAGE_SCRIPTS,
    "yarn test": _TEST_RUNNER,
    "yarn run": _TEST_RUNNER,
    "bun test": _TEST_RUNNER,
    "bun run": _TEST_RUNNER,
    "bun": f"""{_PACKAGE_SCRIPTS} -e --eval -p --print -r --preload --require --bunfile --outdir
        --outfile --compile --import --cwd""",
    "npx": "-c --call --shell --node-options --prefix -p --package --registry --userconfig %dashes"
    " ~w %shelled %before",
    "bunx": "-p --package %shelled %before",
    "pip": """--target -t --prefix --root --src --index-url -i --extra-index-url --find-links -f
        --config-settings -C --global-option --build-option --install-option --python --log
        --editable -e --requirement-file --trusted-host --proxy --cache-dir config ~rc""",
    "pipx": "--pip-args --index-url --python inject runpip",
    "uv": """--with --with-editable --with-requirements --script --index --index-url
        --extra-index-url --default-index --find-links -f --python -p --directory
        --config-file --config-setting --target --prefix --env-file --cache-dir self publish ~m""",
    "uvx": "--with --with-editable --from --index --index-url --default-index --python -p"
    " --config-file --directory --env-file",
    "poetry": "--directory -C --project -P source publish config self",
    "bundle": "config --gemfile --path open %abbreviated",
    "gem": "--source -s push --install-dir -i --config-file -e --extensions %abbreviated",
    "cargo": """--config --manifest-path --lockfile-path -C -Z install publish login owner yank fix
        rustc rustdoc +""",
    "cargo run": _CARGO_BUILD,
    "cargo r": _CARGO_BUILD,
    "cargo build": _CARGO_BUILD,
    "cargo b": _CARGO_BUILD,
    "cargo test": _CARGO_BUILD,
    "cargo t": _CARGO_BUILD,
    "cargo bench": _CARGO_BUILD,
    "cargo check": _CARGO_BUILD,
    "cargo c": _CARGO_BUILD,
    "cargo clippy": f"{_CARGO_BUILD} --fix",
    "cargo doc": f"{_CARGO_BUILD} --open",
    "cargo d": f"{_CARGO_BUILD} --open",
    "cargo --": "--logfile --emit --out-dir --sysroot --extern -C -L -l -o -Z ~ADFW",
    "rustc": "-o -C --codegen --out-dir --sysroot -L -l --emit -Z --extern",
    "rustup": "run toolchain override self",
    "go": """-exec -toolexec -o -C -modfile -overlay -ldflags -gcflags -asmflags -gccgoflags
        -compiler -pkgdir -vettool -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile
        -trace -outputdir -workfile -debug-actiongraph -debug-trace -debug-runtime-trace
        -test.blockprofile -test.coverprofile -test.cpuprofile -test.gocoverdir -test.memprofile
        -test.mutexprofile -test.outputdir -test.testlogfile -test.trace -test.fuzzcachedir
        generate tool install env get fix telemetry %exact""",
    "go test": "-c %exact",
    "go vet": "-vettool %exact",
    "gofmt": "-w -cpuprofile",
    "make": """-f -C -I -E -o --file --makefile --directory --include-dir --eval --old-file
        --assume-old --shuffle --environment-overrides --temp-stdin --touch -e -t = ~jlW
        %shelled""",
    "ninja": "-f -C -t ~jklw",
    "cmake": "-P -E -D -C -S -B -G -T --build --install --toolchain -O --trace-redirect ~AW",
    "ctest": "-S -D --script --dashboard --build-and-test --output-log -O -T -M ~jRELIC",
    "meson": "--native-file --cross-file --wrap-mode",
    "bazel": """--output_base --output_user_root --run_under --workspace_status_command --bazelrc
        --host_jvm_args --override_repository --action_env --script_path --shell_executable
        --package_path --server_javabase --install_base run""",
    "gradle": """-I --init-script -b --build-file -p --project-dir -c --settings-file -D -P
        --include-build --gradle-user-home -g --system-prop --project-prop ~""",
    "mvn": "-f --file -s --settings -gs --global-settings -t --toolchains -D --define -l --log-file"
    " exec:exec exec:java antrun:run",
    "ant": "-f -buildfile -file -lib -D -propertyfile -logfile -listener",
    "just": "-f --justfile -d --working-directory --shell --shell-arg -c --command"
    " --set --dotenv-path --chooser --edit -e --choose %shelled",
    "task": "-t --taskfile -d --dir -g --global -o %shelled",
    "rake": "-f --rakefile -e --execute -E --execute-continue -p --execute-print -r --require -I"
    " --libdir -R --rakelibdir =",
    "composer": "-d --working-dir exec config global run-script !run %abbreviated",
    "mix": "eval archive.install escript.install -e --eval -r --require",
    "dotnet": "--property -p --output -o exec tool nuget -bl /p: --logger",
    "swift": "--package-path --build-path --scratch-path -Xswiftc -Xcc -Xlinker",
    "xcodebuild": "-derivedDataPath -project -workspace -xcconfig",
    "bazelisk": "--output_base --run_under --bazelrc run",
    "tox": "-c --conf --workdir -x --override --root ~e",
    "nox": "-f --noxfile --envdir ~est",
    "pre-commit": "-c --config install autoupdate try-repo",
    "docker": f"{_CONTAINERS} -H --host --context --config -c",
    "docker run": _CONTAINER_OPTIONS,
    "docker create": _CONTAINER_OPTIONS,
    "docker exec": "--privileged --user -u --env-file ~ew",
    "docker build": "-f -o --file --output --secret --ssh --allow --build-context --iidfile ~t",
    "docker compose": _COMPOSE,
    "docker-compose": _COMPOSE,
    "podman": f"{_CONTAINERS} --url --connection --root --runtime --hooks-dir --module",
    "podman run": _CONTAINER_OPTIONS,
    "podman create": _CONTAINER_OPTIONS,
    "podman exec": "--privileged --user -u --env-file ~ew",
    "podman build": "-f -o --file --output --secret --ssh --volume -v --iidfile ~t",
    "kubectl": """--kubeconfig --context --server -s --token --as --exec exec cp delete apply create
        replace patch edit run debug port-forward proxy attach scale rollout drain cordon config
        plugin --output-directory ~nlo""",
    "helm": "--kubeconfig --post-renderer --kube-context install upgrade uninstall delete rollback"
    " plugin repo push",
    "terraform": """-chdir -state -state-out -backup -out -var-file -plugin-dir -backend-config
        apply destroy import taint untaint state force-unlock console login workspace %exact""",
    "tofu": """-chdir -state -state-out -backup -out -var-file -plugin-dir -backend-config
        apply destroy import taint untaint state force-unlock console login workspace %exact""",
    "ansible": "-m -a -e -i --module-name --args --extra-vars --inventory --module-path -M",
    "aws": "--endpoint-url --profile --cli-input-json rm delete-object delete-bucket configure",
    # ---- languages
    "python": "-c -i - --check-hash-based-pycs ~WXm %before",
    "pypy": "-c -i - ~WXm %before",
    "ipython": "-c -i --ext --profile-dir",
    "node": """-e -p -r -i --eval --print --require --import --loader --experimental-loader
        --env-file --interactive --inspect-brk --inspect --openssl-config --diagnostic-dir
        --report-dir
        --report-directory --cpu-prof-dir --heap-prof-dir --icu-data-dir --build-snapshot
        --redirect-warnings --trace-event-file-pattern --tls-keylog --snapshot-blob
        --experimental-config-file -C -""",
    "deno": "eval repl --eval --allow-all -A --allow-run --allow-write --allow-ffi --config -c"
    " --import-map --preload --env-file install upgrade -",
    "ts-node": "-e -p -r -i -C -P --eval --print --require --interactive --compiler --project"
    " --cwd",
    "tsx": "-e --eval -p --print -r --require --import --tsconfig --env-file",
    "perl": "-e -E -i -M -m -I -d -x -n -p - %before",
    "ruby": "-e -i -r -I -C -x -n -p -S -",
    "php": "-r -B -R -E -F -d -c -S -z -a -",
    "lua": "-e -l -i -",
    "java": "-agentpath -agentlib -javaagent -cp -classpath -XX -Xlog -D --class-path @",
    "javac": "-d -processorpath -processor -J -Xplugin --processor-path @",
    "tclsh": "-",
    "osascript": "-e -i -",
    "Rscript": "-e",
    "R": "-e -f --file",
    "julia": "-e -E -L --eval --print --load -",
    "swipl": "-g -t -f -s",
    "ghc": "-e -F -pgmF -o -odir -hidir -fplugin",
    "elixir": "-e --eval -r --require -S",
    "erl": "-eval -run -s -pa -pz",
    "gcc": _COMPILER,
    "g++": _COMPILER,
    "cc": _COMPILER,
    "c++": _COMPILER,
    "clang": _COMPILER,
    "clang++": _COMPILER,
    "psql": "-c -f -o -L -v --command --file --output --log-file --set ~hpUdw",
    "mysql": "-e --execute --tee --pager --defaults-file --defaults-extra-file --plugin-dir"
    " --init-command ~hPuD",
    "sqlite3": "-cmd -init -A -vfs",
    "mongosh": "--eval --file",
    "redis-cli": "--eval --rdb --pipe",
    # ---- tests and linters
    "pytest": """-p -c -o --rootdir --confcutdir --basetemp --pastebin --override-ini --config-file
        --pdbcls --junitxml --junit-xml --log-file --debug --cov-config --import-mode
        --cache-clear --result-log --html --profile-svg --tx --px --rsyncdir --report-log
        --alluredir --json-report-file --benchmark-json --benchmark-storage --memray-bin-path
        --md-report-output @ html: xml: json: lcov: annotate: markdown: +co +cov ~kmrWn
        %relative""",
    "jest": """--config -c --globalSetup --globalTeardown --setupFiles --setupFilesAfterEnv
        --testRunner --transform --resolver --reporters --runner --testEnvironment --rootDir
        --outputFile --coverageDirectory --cacheDirectory --preset --moduleLoader --snapshotResolver
        --testResultsProcessor --testSequencer --watchPlugins --filter --dependencyExtractor
        --haste --globals --prettierPath --projects --roots +coverage ~tow""",
    "vitest": """--config -c --root -r --dir --globalSetup --reporter --outputFile --environment
        --browser --coverage.reportsDirectory --api --open --ui --execArgv --pool --runner
        --snapshotEnvironment +coverage ~t""",
    "mocha": """-r --require --import --config --package --opts --reporter -R --ui -u --file
        --loader --node-option -n --extension --reporter-option -O ~fgtCs""",
    "playwright": "--config -c --output --browser --reporter --ui-host install ~gjx",
    "tsc": """--outDir --outFile --plugins --rootDir --declarationDir --tsBuildInfoFile
        --generateTrace --generateCpuProfile --init ~tmhp""",
    "eslint": """--config -c --rulesdir --resolve-plugins-relative-to --plugin --parser --fix -o
        --output-file --format -f --cache-location --cache-file --init --rule ~""",
    "prettier": "--write -w --config --plugin --plugin-search-dir --cache-location",
    "ruff": "--fix --config --output-file -o --unsafe-fixes --fix-only --add-noqa --cache-dir ~",
    "black": "--config --code -c --line-ranges",
    "mypy": """--config-file --python-executable --cache-dir --junit-xml --html-report --txt-report
        --xml-report --any-exprs-report --linecount-report --linecoverage-report --shadow-file
        --install-types --custom-typeshed-dir --plugins -c -p -m
        --cobertura-xml-report --lineprecision-report --xslt-html-report --xslt-txt-report""",
    "pylint": "--load-plugins --init-hook --rcfile --output --persistent",
    "flake8": "--config --append-config --output-file --tee --isolated",
    "coverage": "--rcfile --data-file -o run erase html xml ~m",
    "golangci-lint": "-c --config --fix --out-format --new-from-patch",
    "shellcheck": "--rcfile",
    "rspec": "-r --require -I -O --options -o --out --format -f ~etP",
    "phpunit": "-c --configuration --bootstrap --log-junit --coverage-html --extension",
    "hyperfine": "--prepare --setup --cleanup --export-json --export-csv"
    " --export-markdown --shell -S -p -s -c",
    # ---- shells
    "sh": "-c -i -o -C --rcfile --init-file --init-command --command - + ~O %before",
}
SAME: Final[Mapping[str, str]] = {
    alias: program
    for program, aliases in {
        "find": "gfind bfs",
        "sed": "gsed",
        "awk": "gawk mawk nawk original-awk",
        "sh": "bash zsh dash ksh mksh ash fish csh tcsh rbash hush lksh",
        "vi": "vim view nvim ex gvim vimdiff rvim nano emacs",
        "node": "nodejs",
        "fd": "fdfind",
        "tar": "gtar bsdtar",
        "sort": "gsort",
        "grep": "egrep fgrep zgrep",
        "less": "most bat batcat",
        "nc": "ncat netcat",
        "pytest": "py.test",
        "gradle": "gradlew",
        "mvn": "mvnw",
        "diff": "gdiff colordiff",
        "make": "gmake",
    }.items()
    for alias in aliases.split()
}
"""Programs that take the options of another one."""
CARRIERS: Final = names(
    """python pypy uv uvx poetry
    pipenv pdm hatch rye conda mamba micromamba mise asdf direnv nix nix-shell
    devbox npx bunx pnpx pnpm yarn bun npm dotenv dotenvx cross-env bundle rbenv pyenv nvm
    volta opam stack cabal doppler op infisical vault xvfb-run dbus-run-session docker podman
    kubectl docker-compose ssh winpty arch setarch rlwrap unbuffer chronic gosu su-exec tini
    dumb-init foreman honcho heroku railway fly flyctl vagrant lima coverage nodemon
    ts-node-dev concurrently wait-on start-server-and-test entr reflex watchexec hyperfine
    perf valgrind heaptrack rr qemu-x86_64 wine mpirun srun"""
)
"""Programs that may run another one, named among their arguments."""
