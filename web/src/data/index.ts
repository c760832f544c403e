// The data layer of the page.
import { browserEnvironment } from './browser.ts'
import { createData } from './data.ts'
import type { Data } from './types.ts'

export type * from './types.ts'
export type * from '../protocol/types.ts'

function begin(): Data {
  const environment = browserEnvironment()
  const made = createData(environment)
  environment.onPushTest(() => made.onPushTest())
  return made
}

export const data: Data = begin()
