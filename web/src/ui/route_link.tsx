import type { ComponentChildren, JSX } from 'preact'
import { go, hrefOf, type Route } from './router'

type Props = {
  to: Route
  class?: string
  label?: string
  current?: boolean
  children: ComponentChildren
}

/** A link inside the page. */
export function RouteLink(props: Props): JSX.Element {
  return (
    <a
      href={`/${hrefOf(props.to)}`}
      class={props.class ?? ''}
      aria-label={props.label}
      aria-current={props.current === true ? 'page' : undefined}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return
        event.preventDefault()
        go(props.to)
      }}
    >
      {props.children}
    </a>
  )
}
