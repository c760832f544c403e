// The theme: that of the system, or the one chosen here.

import { effect, signal } from '@preact/signals'

export type Theme = 'system' | 'light' | 'dark'

const KEY = 'quarterdeck.theme'
const GROUNDS = { light: '#f6f7f6', dark: '#0f1316' }
const dark = matchMedia('(prefers-color-scheme: dark)')
const isSystemDark = signal(dark.matches)

export const theme = signal<Theme>(stored())

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY)
    return found === 'light' || found === 'dark' ? found : 'system'
  } catch {
    return 'system'
  }
}

export function setTheme(wanted: Theme): void {
  theme.value = wanted
  try {
    localStorage.setItem(KEY, wanted)
  } catch {
    // No storage in this browser: the value lasts until the page is closed.
  }
}

export function followTheme(): void {
  dark.addEventListener('change', (event) => {
    isSystemDark.value = event.matches
  })
  effect(() => {
    const isDark = theme.value === 'dark' || (theme.value === 'system' && isSystemDark.value)
    const name = isDark ? 'dark' : 'light'
    document.documentElement.dataset['theme'] = name
    document.querySelector('meta[name="theme-color"]')?.setAttribute('content', GROUNDS[name])
  })
}
