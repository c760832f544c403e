// A file that is being named in a prompt: `@` and letters of its name, up to where is written. Pure.

const BEING_NAMED = /(?:^|[\s(])@([^\s@]{0,100})$/

export type Mention = { from: number; query: string }

export function mentionAt(text: string, caret: number): Mention | null {
  const query = BEING_NAMED.exec(text.slice(Math.max(0, caret - 200), caret))?.[1]
  return query === undefined ? null : { from: caret - query.length - 1, query }
}

/** The text with the name in it, and where to write on. */
export function withMention(
  text: string,
  mention: Mention,
  name: string,
): { text: string; caret: number } {
  const end = mention.from + 1 + mention.query.length
  const before = `${text.slice(0, mention.from)}@${name} `
  return { text: before + text.slice(end).replace(/^ /, ''), caret: before.length }
}
