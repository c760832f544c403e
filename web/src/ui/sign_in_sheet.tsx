// Signing in to an agent: its ways, and a simple view of the terminal that one of them runs in.

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { data, type SignInMethod, type SignInState } from '../data/index.ts'
import { stripAnsi } from './ansi'
import { sentence } from './format'
import { Sheet, Spinner } from './kit'
import { Visible } from './visible_text'

const KEPT = 20_000

export function SignInSheet({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const [methods, setMethods] = useState<readonly SignInMethod[] | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const [begun, setBegun] = useState<SignInState | null>(null)
  useEffect(() => {
    void data.signInMethods(name).then((outcome) => {
      if (outcome.ok) setMethods(outcome.value.methods)
      else setProblem(outcome.refusal.message)
    })
  }, [name])
  const begin = async (method: SignInMethod): Promise<void> => {
    setProblem(null)
    const outcome = await data.beginSignIn(name, method.id)
    if (outcome.ok) setBegun(outcome.value)
    else setProblem(outcome.refusal.message)
  }
  return (
    <Sheet title={`Sign in to ${name}`} onClose={onClose}>
      {problem === null ? null : (
        <p class="note bad" role="alert">
          {sentence(problem)}
        </p>
      )}
      {begun === null ? (
        <Methods methods={methods} hasFailed={problem !== null} onChoose={begin} />
      ) : (
        <RunningSignIn key={begun.id} begun={begun} onClose={onClose} />
      )}
    </Sheet>
  )
}

function Methods(props: {
  methods: readonly SignInMethod[] | null
  hasFailed: boolean
  onChoose: (method: SignInMethod) => Promise<void>
}): JSX.Element | null {
  if (props.methods === null) return props.hasFailed ? null : <Spinner label="Starting the agent" />
  if (props.methods.length === 0) return <p class="note">This agent offers no sign-in methods.</p>
  return (
    <ul class="list">
      {props.methods.map((method) => (
        <li key={method.id} class="list-row">
          <span class="row-text">
            <span class="row-title">
              <Visible text={method.name} />
            </span>
            <span class="row-note">
              {method.kind === 'environment'
                ? `Set ${method.variables.join(' or ')} where you start the hub, then run quarterdeck down and quarterdeck up`
                : method.description}
            </span>
          </span>
          {method.kind === 'environment' ? null : (
            <button type="button" class="button plain small" onClick={() => void props.onChoose(method)}>
              Sign in
            </button>
          )}
        </li>
      ))}
    </ul>
  )
}

function RunningSignIn({ begun, onClose }: { begun: SignInState; onClose: () => void }): JSX.Element {
  const [state, setState] = useState(begun)
  const [text, setText] = useState('')
  const [line, setLine] = useState('')
  const screen = useRef<HTMLPreElement>(null)
  const last = useRef(begun)
  useEffect(() => {
    let isOpen = true
    const follow = async (): Promise<void> => {
      let position = 0
      while (isOpen) {
        const outcome = await data.signInOutput(begun.id, position)
        if (!isOpen) return
        if (!outcome.ok) {
          setState({ ...begun, state: 'failed', reason: outcome.refusal.message })
          return
        }
        position = outcome.value.position
        last.current = outcome.value.signIn
        setText((now) => (now + outcome.value.text).slice(-KEPT))
        setState(outcome.value.signIn)
        if (outcome.value.signIn.state !== 'running') return
      }
    }
    void follow()
    return () => {
      isOpen = false
      if (last.current.state === 'running') void data.cancelSignIn(begun.id)
    }
  }, [begun.id])
  useEffect(() => screen.current?.scrollTo({ top: screen.current.scrollHeight }), [text])
  const send = (): void => {
    void data.typeSignIn(begun.id, `${line}\n`)
    setLine('')
  }
  return (
    <>
      {begun.kind === 'terminal' ? (
        <pre ref={screen} class="sign-in-terminal" aria-label="Terminal" tabIndex={0}>
          {stripAnsi(text).replaceAll('\r\n', '\n')}
        </pre>
      ) : (
        <p class="note">Complete the agent's own sign-in on the hub's computer.</p>
      )}
      <p class={`note ${state.state === 'failed' ? 'bad' : ''}`} role="status">
        {words(state)}
      </p>
      {state.state === 'running' ? (
        <form
          class="sign-in-input"
          onSubmit={(event) => {
            event.preventDefault()
            send()
          }}
        >
          {begun.kind === 'terminal' ? (
            <>
              <input
                class="input mono"
                type="text"
                aria-label="Terminal input"
                autoComplete="off"
                autoCapitalize="off"
                spellcheck={false}
                value={line}
                onInput={(event) => setLine(event.currentTarget.value)}
              />
              <button type="submit" class="button primary">
                Enter
              </button>
            </>
          ) : null}
          <button type="button" class="button plain" onClick={onClose}>
            Cancel
          </button>
        </form>
      ) : (
        <button type="button" class="button primary" onClick={onClose}>
          Done
        </button>
      )}
    </>
  )
}

function words(state: SignInState): string {
  switch (state.state) {
    case 'running':
      return 'Signing in'
    case 'done':
      return state.retried.length > 0 ? 'Signed in; failed prompts are sent again' : 'Signed in'
    case 'failed':
      return state.reason
  }
}
