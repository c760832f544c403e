// Mode, model and other options of a session: chips that show what the agent has confirmed.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import {
  data,
  type ConfigOption,
  type ConfigOptionGroup,
  type ConfigOptionValue,
  type SessionView,
} from '../data/index.ts'
import { DownIcon } from './icons'
import { ChoiceList, Sheet, Switch, type Choice } from './kit'

// Modes without permission requests: their chip is red.
const UNGUARDED = /bypass|yolo|dontask|full[-_ ]?auto|unrestricted|auto[-_ ]?approve|danger/i

export function OptionChips({ view }: { view: SessionView }): JSX.Element {
  return (
    <div class="pickers">
      {optionsOf(view).map((option) => (
        <OptionPicker key={option.id} option={option} />
      ))}
    </div>
  )
}

type SessionOption = {
  id: string
  name: string
  value: string
  label: string
  choices: Choice[]
  isPending: boolean
  isUnguarded: boolean
  toggle: boolean | null
  choose: (value: string | boolean) => void
}

/** Agents offer modes in two ways: as modes, or as an option of that category. */
export function optionsOf(view: SessionView): SessionOption[] {
  const { modes, configOptions } = view.state.value
  const picked = configOptions.map((option) => pickedOption(view, option))
  const hasMode = configOptions.some((option) => option.category === 'mode')
  if (modes !== null && modes.availableModes.length > 0 && !hasMode) {
    const current = modes.availableModes.find((mode) => mode.id === modes.currentModeId)
    picked.unshift({
      id: 'mode',
      name: 'Mode',
      value: modes.currentModeId,
      label: current?.name ?? modes.currentModeId,
      choices: modes.availableModes.map((mode) => ({
        value: mode.id,
        label: mode.name,
        note: mode.description ?? undefined,
        tone: UNGUARDED.test(mode.id) ? 'bad' : undefined,
      })),
      isPending: isPending(view.sessionId, 'set-mode', null),
      isUnguarded: UNGUARDED.test(modes.currentModeId),
      toggle: null,
      choose: (value) => data.setMode(view.sessionId, String(value)),
    })
  }
  return picked
}

function pickedOption(view: SessionView, option: ConfigOption): SessionOption {
  const choices = choicesOf(option)
  const value = String(option.currentValue)
  const isMode = option.category === 'mode'
  return {
    id: option.id,
    name: option.name,
    value,
    label:
      typeof option.currentValue === 'boolean'
        ? option.name
        : (choices.find((each) => each.value === value)?.label ?? value),
    choices: choices.map((each) => ({
      ...each,
      tone: isMode && UNGUARDED.test(each.value) ? 'bad' : undefined,
    })),
    isPending: isPending(view.sessionId, 'set-option', option.id),
    isUnguarded: isMode && UNGUARDED.test(value),
    toggle: typeof option.currentValue === 'boolean' ? option.currentValue : null,
    choose: (chosen) => data.setOption(view.sessionId, option.id, chosen),
  }
}

function choicesOf(option: ConfigOption): Choice[] {
  const options = (option.options ?? []) as unknown as (ConfigOptionValue | ConfigOptionGroup)[]
  return options
    .flatMap((each) => ('options' in each ? each.options : [each]))
    .map((each) => ({ value: each.value, label: each.name, note: each.description ?? undefined }))
}

function isPending(sessionId: string, kind: string, configId: string | null): boolean {
  return data.actions.value.some(
    (action) =>
      action.kind === kind &&
      action.sessionId === sessionId &&
      (action.state === 'queued' || action.state === 'sent') &&
      (configId === null || action.body['configId'] === configId),
  )
}

export function OptionPicker({ option, wide = false }: { option: SessionOption; wide?: boolean }): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  if (option.toggle !== null && wide) {
    return (
      <Switch
        label={option.name}
        checked={option.toggle}
        disabled={option.isPending || !data.may('prompt')}
        onChange={option.choose}
      />
    )
  }
  return (
    <>
      <button
        type="button"
        class={`${wide ? 'pick-row' : 'chip'} ${option.isUnguarded ? 'bad' : ''} ${option.isPending ? 'pending' : ''}`}
        disabled={!data.may('prompt')}
        aria-haspopup="dialog"
        aria-label={wide ? undefined : `${option.name}: ${option.label}`}
        onClick={() => setOpen(true)}
      >
        {wide ? <span class="muted">{option.name}</span> : null}
        <span class="chip-label">
          {option.toggle === null
            ? option.label
            : `${option.name}: ${option.toggle ? 'on' : 'off'}`}
        </span>
        {option.isPending ? <span class="spinner" aria-hidden="true" /> : <DownIcon size={14} />}
      </button>
      {isOpen ? (
        <Sheet title={option.name} onClose={() => setOpen(false)}>
          <ChoiceList
            label={option.name}
            choices={
              option.toggle === null
                ? option.choices
                : [
                    { value: 'true', label: 'On' },
                    { value: 'false', label: 'Off' },
                  ]
            }
            value={option.value}
            onChoose={(value) => {
              setOpen(false)
              if (value !== option.value)
                option.choose(option.toggle === null ? value : value === 'true')
            }}
          />
        </Sheet>
      ) : null}
    </>
  )
}
