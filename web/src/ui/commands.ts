import type { AvailableCommand } from '../data/index.ts'

const MOST = 8

/** Commands that what is written may become; none once there is a space. */
export function commandMatches(
  commands: readonly AvailableCommand[],
  text: string,
): AvailableCommand[] {
  const written = /^\/(\S*)$/.exec(text)?.[1]?.toLowerCase()
  if (written === undefined) return []
  const begin = commands.filter((command) => command.name.toLowerCase().startsWith(written))
  const within = commands.filter(
    (command) => !begin.includes(command) && command.name.toLowerCase().includes(written),
  )
  return [...begin, ...within].slice(0, MOST)
}
