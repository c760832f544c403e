// The frame of a screen that is not a session.

import type { ComponentChildren, JSX } from 'preact'
import { ConnectionPill, OfflineBanner } from './connection'
import { BackIcon } from './icons'
import { IconButton } from './kit'
import { goBack, type Route } from './router'
import { RunnerBanner } from './runner'

type Props = {
  title: string
  back?: Route
  action?: ComponentChildren
  children: ComponentChildren
}

export function Screen({ title, back, action, children }: Props): JSX.Element {
  return (
    <div class="screen">
      <header class="top">
        {back === undefined ? null : (
          <IconButton label="Back" onClick={() => goBack(back)}>
            <BackIcon />
          </IconButton>
        )}
        <div class="top-text">
          <h1 class="top-title big">{title}</h1>
        </div>
        {action}
        <ConnectionPill />
      </header>
      <OfflineBanner />
      <RunnerBanner />
      <div class="scroll">
        <div class="column">{children}</div>
      </div>
    </div>
  )
}
