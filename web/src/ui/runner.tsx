// The process that runs agents: that it restarts soon, or cannot be reached.

import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { Banner } from './kit'

const RESTARTS = 'Agents will restart when the running turns end. New prompts wait until then.'
const AWAY = 'Agents are restarting. Prompts wait until they are back.'

/** At the top of every screen, while the runner is not as usual. */
export function RunnerBanner(): JSX.Element | null {
  const { isConnected, isDraining } = data.runner.value
  if (data.connection.value.state === 'offline' || (isConnected && !isDraining)) return null
  return <Banner tone="plain">{isConnected ? RESTARTS : AWAY}</Banner>
}
