export type * from './types.ts'
export type * from '../protocol/types.ts'
