// The pairing screen of a device that the hub does not know.

import { computed, signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data } from '../data/index.ts'
import { sentence } from '../ui/format'
import { Wheel } from '../ui/icons'
import { showToast } from '../ui/kit'
import { go } from '../ui/router'

const IN_LINK = /^#pair=([^&]+)/

/** The code of a pairing link, removed from the address bar and the history at once. */
function codeFromLink(): string {
  const code = IN_LINK.exec(location.hash)?.[1]
  if (code === undefined) return ''
  history.replaceState(null, '', '/')
  return decodeURIComponent(code)
}

/** The code of the pairing link that was opened last, also while the page was open. */
const linkCode = signal(codeFromLink())

/** Whether a pairing link was opened and its code is not used yet. */
export const hasPairingLink = computed(() => linkCode.value !== '')

addEventListener('hashchange', () => {
  const code = codeFromLink()
  if (code !== '') linkCode.value = code
})

export function guessedName(agent: string): string {
  const system = /iPhone|iPad|Android|Macintosh|Windows|CrOS|Linux/.exec(agent)?.[0] ?? 'Device'
  const names: Record<string, string> = {
    Macintosh: 'Mac',
    CrOS: 'Chromebook',
    Windows: 'Windows computer',
    Linux: 'Linux computer',
    Android: 'Android phone',
  }
  const browser = /Firefox|Edg|OPR|Chrome|Safari/.exec(agent)?.[0] ?? ''
  const browsers: Record<string, string> = { Edg: 'Edge', OPR: 'Opera' }
  return `${names[system] ?? system}${browser === '' ? '' : `, ${browsers[browser] ?? browser}`}`
}

const NOT_STORED =
  'This browser does not store data for this page, so it stays paired only until you close the page. ' +
  'To stay paired, use a window that is not in private mode.'

/** Why this browser cannot make a key at this address, and what to do. */
function Unsupported(): JSX.Element {
  const local = `http://127.0.0.1${location.port === '' ? '' : `:${location.port}`}/`
  return (
    <p class="note bad" role="alert">
      Browsers create keys only on pages loaded over HTTPS or from localhost. On the hub's computer, open{' '}
      <code>{local}</code>. To use another device, give the hub a TLS certificate: see{' '}
      <em>From another device</em> in the documentation.
    </p>
  )
}

export function PairScreen(): JSX.Element {
  const [typed, setTyped] = useState('')
  const [name, setName] = useState(guessedName(navigator.userAgent))
  const [isBusy, setBusy] = useState(false)
  const [problem, setProblem] = useState<string | null>(null)
  const isFromLink = linkCode.value !== ''
  const code = isFromLink ? linkCode.value : typed
  const pair = async (): Promise<void> => {
    setBusy(true)
    setProblem(null)
    const outcome = await data.pair(code.trim(), name.trim())
    setBusy(false)
    linkCode.value = ''
    if (!outcome.ok) return setProblem(outcome.refusal.message)
    if (!outcome.value.isStored) showToast(NOT_STORED, 'bad')
    go({ name: 'sessions' }, 'replace')
  }
  useEffect(() => {
    document.title = 'Pair this device · Quarterdeck'
  }, [])
  return (
    <main class="pair" id="main">
      <form
        class="pair-card form"
        onSubmit={(event) => {
          event.preventDefault()
          void pair()
        }}
      >
        <div class="pair-mark">
          <Wheel size={44} />
        </div>
        <h1>Quarterdeck</h1>
        {isFromLink ? (
          <p>
            Ready to pair. Name this device so that you can recognise it in the list of devices.
          </p>
        ) : (
          <p>
            This device is not paired with the hub. Run <code>quarterdeck devices pair</code> on the
            hub's computer, or choose <em>Pair a device</em> on a paired device, then enter the code.
            Pair again if you cleared this browser's data, or if this browser was paired with an older version of the hub.
          </p>
        )}
        {data.canPair ? null : <Unsupported />}
        {isFromLink ? null : (
          <div class="field">
            <label for="pair-code">Pairing code</label>
            <input
              id="pair-code"
              class="input pair-input"
              value={code}
              placeholder="XXXX-XXXX"
              autoComplete="one-time-code"
              autoCapitalize="characters"
              autoCorrect="off"
              spellcheck={false}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </div>
        )}
        <div class="field">
          <label for="pair-name">Device name</label>
          <input
            id="pair-name"
            class="input"
            value={name}
            maxLength={60}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </div>
        {problem === null ? null : (
          <p class="note bad" role="alert">
            {sentence(problem)}
          </p>
        )}
        <button
          type="submit"
          class="button primary big"
          disabled={isBusy || !data.canPair || code.trim() === '' || name.trim() === ''}
        >
          {isBusy ? 'Pairing…' : 'Pair this device'}
        </button>
      </form>
    </main>
  )
}
