// An MCP server as it is typed. Secrets are references to the environment of the hub.

import type { AddedServer } from '../data/index.ts'

/** A server by what was typed; a sentence if it is none. */
export function serverOf(name: string, where: string, secrets: string): AddedServer | string {
  const words = where.match(/"[^"]*"|'[^']*'|\S+/g)?.map((word) => word.replace(/^(["'])(.*)\1$/, '$2'))
  const [command = '', ...args] = words ?? []
  if (name.trim() === '' || command === '') return 'Enter a name, and a command or a URL.'
  const isUrl = /^https?:/.test(command)
  const values: { [key: string]: string } = {}
  for (const line of secrets.split('\n').map((each) => each.trim()).filter((each) => each !== '')) {
    const [, key, value] = (isUrl ? /^([^:\s]+):\s*(.*)$/ : /^([A-Za-z_]\w*)=(.*)$/).exec(line) ?? []
    if (key === undefined || value === undefined)
      return `Write one ${isUrl ? 'NAME: ${VARIABLE}' : 'NAME=${VARIABLE}'} per line.`
    if (!(isUrl ? /^([A-Za-z]+ )?\$\{[A-Za-z_]\w*\}$/ : /^\$\{[A-Za-z_]\w*\}$/).test(value))
      return `${key} has a literal value. Set a variable in the hub's environment, and enter \${NAME} instead.`
    values[key] = value
  }
  if (isUrl) return { name: name.trim(), url: command, headers: values }
  return { name: name.trim(), command, args, env: values }
}
