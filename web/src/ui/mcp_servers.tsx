// The MCP servers of a new session: those of hub.toml, chosen by name, and others for it alone.
//
// Secrets are references to the environment of the hub (`${NAME}`); what is written out is refused
// here and by the hub. Nothing of it is stored in the browser.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type AddedServer, type McpServers, type McpServerView } from '../data/index.ts'
import { PlusIcon } from './icons'
import { Sheet } from './kit'
import { serverOf } from './mcp_server_form'

const SETTLED_MS = 300 // after the last letter of a path

/** What was chosen; null: all servers that the folder gets. */
export type McpChoice = { left: ReadonlySet<string>; added: readonly AddedServer[] }

export const ALL: McpChoice = { left: new Set(), added: [] }

/** The choice as the hub takes it; undefined if nothing differs from what a folder gets. */
export function chosenServers(
  choice: McpChoice,
  servers: readonly McpServerView[],
): McpServers | undefined {
  const used = servers.filter((each) => each.isUsed)
  const configured = used.filter((each) => isChosen(choice, each)).map((each) => each.name)
  if (configured.length === used.length && choice.added.length === 0) return undefined
  return { configured, added: [...choice.added] }
}

function isChosen({ left, added }: McpChoice, server: McpServerView): boolean {
  const isReplaced = added.some((each) => each.name === server.name)
  return !isReplaced && server.missing.length === 0 && !left.has(server.name)
}

/** The servers of the configuration; read again when the folder or the machine changes. */
export function useMcpServers(folder: string, machine: string | null): readonly McpServerView[] {
  const [servers, setServers] = useState<readonly McpServerView[]>([])
  useEffect(() => {
    let isHere = true
    const path = folder.trim()
    if (!path.startsWith('/')) return undefined
    const timer = setTimeout(() => {
      void data.mcpServers(path, machine).then((outcome) => {
        if (isHere) setServers(outcome.ok ? outcome.value : [])
      })
    }, SETTLED_MS)
    return () => {
      isHere = false
      clearTimeout(timer)
    }
  }, [folder, machine])
  return servers
}

type Props = {
  servers: readonly McpServerView[]
  choice: McpChoice
  onChange: (choice: McpChoice) => void
}

export function McpServerChoice({ servers, choice, onChange }: Props): JSX.Element | null {
  const [isAdding, setAdding] = useState(false)
  const used = servers.filter((each) => each.isUsed)
  if (used.length === 0 && choice.added.length === 0 && !data.may('admin')) return null
  const count = used.filter((each) => isChosen(choice, each)).length + choice.added.length
  const toggle = (name: string, isOn: boolean): void => {
    const left = new Set(choice.left)
    if (isOn) left.delete(name)
    else left.add(name)
    onChange({ ...choice, left })
  }
  return (
    <details class="mcp-choice">
      <summary>MCP servers ({count})</summary>
      {used.map((server) => (
        <label key={server.name} class="mcp-server">
          <input
            type="checkbox"
            checked={isChosen(choice, server)}
            disabled={server.missing.length > 0}
            onChange={(event) => toggle(server.name, event.currentTarget.checked)}
          />
          <span class="row-text">
            <span>
              {server.name}{' '}
              <span class="tag">{server.projects.length === 0 ? 'all folders' : 'this project'}</span>
            </span>
            <span class="row-note mono">{server.url === '' ? server.command : server.url}</span>
            {server.missing.length === 0 ? null : (
              <span class="row-note bad">
                Needs {server.missing.join(', ')}, which is not set in the hub's environment
              </span>
            )}
          </span>
        </label>
      ))}
      {choice.added.map((server) => (
        <div key={server.name} class="mcp-server">
          <span class="row-text">
            <span>
              {server.name} <span class="tag accent">this session</span>
            </span>
            <span class="row-note mono">{wordsOf(server)}</span>
          </span>
          <button
            type="button"
            class="text-button"
            aria-label={`Remove ${server.name}`}
            onClick={() =>
              onChange({ ...choice, added: choice.added.filter((each) => each !== server) })
            }
          >
            Remove
          </button>
        </div>
      ))}
      {used.length === 0 && choice.added.length === 0 ? (
        <p class="note">hub.toml has none for this folder.</p>
      ) : null}
      {data.may('admin') ? (
        <button type="button" class="button plain small" onClick={() => setAdding(true)}>
          <PlusIcon size={16} /> Add a server
        </button>
      ) : null}
      {isAdding ? (
        <AddSheet
          taken={choice.added.map((each) => each.name)}
          onClose={() => setAdding(false)}
          onAdd={(server) => {
            onChange({ ...choice, added: [...choice.added, server] })
            setAdding(false)
          }}
        />
      ) : null}
    </details>
  )
}

function wordsOf(server: AddedServer): string {
  return server.url ? server.url : [server.command, ...(server.args ?? [])].join(' ')
}

function AddSheet(props: {
  taken: readonly string[]
  onClose: () => void
  onAdd: (server: AddedServer) => void
}): JSX.Element {
  const [name, setName] = useState('')
  const [where, setWhere] = useState('')
  const [secrets, setSecrets] = useState('')
  const [problem, setProblem] = useState<string | null>(null)
  const isUrl = /^https?:/.test(where.trim())
  const add = (): void => {
    const made = serverOf(name, where, secrets)
    if (typeof made === 'string') setProblem(made)
    else if (props.taken.includes(made.name)) setProblem(`There is a server ${made.name} already.`)
    else props.onAdd(made)
  }
  return (
    <Sheet title="Add an MCP server" onClose={props.onClose}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault()
          event.stopPropagation()
          add()
        }}
      >
        <div class="field">
          <label for="mcp-name">Name</label>
          <input
            id="mcp-name"
            class="input"
            value={name}
            maxLength={60}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </div>
        <div class="field">
          <label for="mcp-where">Command or URL</label>
          <input
            id="mcp-where"
            class="input mono"
            value={where}
            placeholder="npx -y files-mcp"
            autoCapitalize="off"
            spellcheck={false}
            onInput={(event) => setWhere(event.currentTarget.value)}
          />
        </div>
        <div class="field">
          <label for="mcp-secrets">{isUrl ? 'Headers' : 'Environment'}</label>
          <textarea
            id="mcp-secrets"
            class="input mono"
            rows={3}
            value={secrets}
            placeholder={isUrl ? 'Authorization: Bearer ${DOCS_TOKEN}' : 'FILES_TOKEN=${FILES_TOKEN}'}
            autoCapitalize="off"
            spellcheck={false}
            onInput={(event) => setSecrets(event.currentTarget.value)}
          />
          <p class="note">
            One per line. Enter a variable of the hub's environment as <code>{'${NAME}'}</code>; its
            value is read on that computer, and is neither stored nor logged.
          </p>
        </div>
        {problem === null ? null : (
          <p class="note bad" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" class="button primary big">
          Add
        </button>
      </form>
    </Sheet>
  )
}
