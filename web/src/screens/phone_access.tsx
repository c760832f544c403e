// How phones reach the hub: the hub's own sentences, the same as `quarterdeck doctor` prints.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Reach, type Way } from '../data/index.ts'
import { QrCode } from '../ui/qr'

const STATES: Record<Way['state'], string> = {
  usable: 'Ready',
  possible: 'Needs setup',
  unavailable: 'Not available',
}

/** The ways that there are, the best first; only an admin device may read them. */
export function PhoneAccess(): JSX.Element | null {
  const [reach, setReach] = useState<Reach | null>(null)
  useEffect(() => {
    let isHere = true
    void data.reach().then((outcome) => {
      if (isHere && outcome.ok) setReach(outcome.value)
    })
    return () => {
      isHere = false
    }
  }, [])
  if (reach === null) return null
  const others = reach.ways.filter((way) => way.found !== reach.found)
  return (
    <section class="card phone-access" aria-labelledby="phone-access">
      <h2 class="group-name" id="phone-access">
        Phone access
      </h2>
      <p>
        <span class={reach.isUsable ? 'tag accent' : 'tag'}>
          {reach.isUsable ? 'Ready' : 'Not set up'}
        </span>{' '}
        {reach.found}.
      </p>
      <NextStep step={reach.nextStep} />
      {others.length === 0 ? null : (
        <details>
          <summary>Other options</summary>
          <ul>
            {others.map((way) => (
              <li key={way.kind}>
                <span class="tag">{STATES[way.state]}</span> {way.found}.
                {way.nextStep === reach.nextStep ? null : <NextStep step={way.nextStep} />}
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  )
}

function NextStep({ step }: { step: string }): JSX.Element | null {
  return step === '' ? null : (
    <p class="muted">
      <Step text={step} />
    </p>
  )
}

/** What to do next; an option of a command, such as `--phone`, is not broken. */
export function Step({ text }: { text: string }): JSX.Element {
  return (
    <>
      {text.split(/(--[\w-]+)/).map((part, at) =>
        at % 2 === 1 ? (
          <span key={at} class="unbroken">
            {part}
          </span>
        ) : (
          part
        ),
      )}
    </>
  )
}

/** What a phone has to do before it can open the link, once: trust the hub's own certificate. */
export function TrustSteps({ reach }: { reach: Reach }): JSX.Element | null {
  if (reach.trustSteps === 0 || reach.trustUrl === null) return null
  return (
    <>
      <h3>1. Trust the hub, once per phone</h3>
      <p>
        Scan this code, or open <code>{reach.trustUrl}</code> on the phone, and follow the{' '}
        {reach.trustSteps} steps there.
      </p>
      <QrCode text={reach.trustUrl} label="QR code for the page with the hub's certificate" />
      <p class="muted">The certificate on the phone must have this fingerprint (SHA-256):</p>
      <p class="fingerprint">
        {(reach.fingerprint ?? '').match(/.{1,24}/g)?.map((part) => <span key={part}>{part} </span>)}
      </p>
      <h3>2. Pair the phone</h3>
    </>
  )
}
