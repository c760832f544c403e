// The current screen, in the fragment of the address, which browsers do not send to the hub.

import { signal } from '@preact/signals'

export type Route =
  | { name: 'sessions' }
  | { name: 'session'; id: string }
  | { name: 'inbox'; request: string | null }
  | { name: 'agents' }
  | { name: 'new'; agent: string | null }
  | { name: 'devices' }
  | { name: 'machines' }
  | { name: 'elsewhere' }
  | { name: 'settings' }

type PlainName = Exclude<Route['name'], 'sessions' | 'session' | 'inbox' | 'new'>

/** Screens without details. An object, not a list: tsc names a screen that is missing here. */
const PLAIN: Record<PlainName, { name: PlainName }> = {
  agents: { name: 'agents' },
  devices: { name: 'devices' },
  machines: { name: 'machines' },
  elsewhere: { name: 'elsewhere' },
  settings: { name: 'settings' },
}

export function parseRoute(fragment: string): Route {
  const [name = '', rest] = fragment.replace(/^#?\/?/, '').split('/', 2)
  const detail = rest === undefined || rest === '' ? null : decoded(rest)
  if (name === 's' && detail !== null) return { name: 'session', id: detail }
  if (name === 'inbox') return { name: 'inbox', request: detail }
  if (name === 'new') return { name: 'new', agent: detail }
  return Object.hasOwn(PLAIN, name) ? PLAIN[name as PlainName] : { name: 'sessions' }
}

export function hrefOf(route: Route): string {
  switch (route.name) {
    case 'sessions':
      return '#/'
    case 'session':
      return `#/s/${encodeURIComponent(route.id)}`
    case 'inbox':
      return route.request === null ? '#/inbox' : `#/inbox/${encodeURIComponent(route.request)}`
    case 'new':
      return route.agent === null ? '#/new' : `#/new/${encodeURIComponent(route.agent)}`
    default:
      return `#/${route.name}`
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** A link from outside, such as a notification, may have the route in its path. */
function fragmentOf(place: Location): string {
  if (place.hash !== '' && place.hash !== '#') return place.hash
  return place.pathname === '/' ? '' : `#${place.pathname}`
}

export const route = signal<Route>(parseRoute(fragmentOf(location)))
let steps = 0

export function go(to: Route, how: 'push' | 'replace' = 'push'): void {
  if (how === 'replace') history.replaceState(null, '', `/${hrefOf(to)}`)
  else {
    steps += 1
    history.pushState(null, '', `/${hrefOf(to)}`)
  }
  route.value = to
}

/** Back to the previous screen; to `otherwise` if there is none. */
export function goBack(otherwise: Route): void {
  if (steps > 0) history.back()
  else go(otherwise, 'replace')
}

addEventListener('popstate', () => {
  steps = Math.max(0, steps - 1)
  route.value = parseRoute(fragmentOf(location))
})
