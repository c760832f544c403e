// The fields of an elicitation's form, read from its schema, and validation of what was entered. Pure.

import type { JsonObject } from '../data/index.ts'
import { plural } from './format.ts'

export type FieldChoice = { value: string; label: string }
export type Field = {
  name: string
  label: string
  note: string
  kind: 'text' | 'number' | 'boolean' | 'one' | 'many'
  inputType: 'text' | 'email' | 'url' | 'date' | 'datetime-local'
  isLong: boolean
  isRequired: boolean
  isWhole: boolean
  choices: FieldChoice[]
  initial: unknown
  least: number | null
  most: number | null
}

const INPUT_TYPES: Record<string, Field['inputType']> = {
  email: 'email',
  uri: 'url',
  date: 'date',
  'date-time': 'datetime-local',
}

export function fieldsOf(schema: unknown): Field[] {
  const whole = asObject(schema)
  const required = Array.isArray(whole['required']) ? whole['required'] : []
  return Object.entries(asObject(whole['properties'])).map(([name, each]) =>
    fieldOf(name, asObject(each), required.includes(name)),
  )
}

function fieldOf(name: string, schema: JsonObject, isRequired: boolean): Field {
  const type = schema['type']
  const items = asObject(schema['items'])
  const choices = type === 'array' ? choicesOf(items) : choicesOf(schema)
  const kind =
    type === 'array'
      ? 'many'
      : choices.length > 0
        ? 'one'
        : type === 'boolean'
          ? 'boolean'
          : type === 'number' || type === 'integer'
            ? 'number'
            : 'text'
  const isNumber = kind === 'number'
  const most = asNumber(schema[isNumber ? 'maximum' : kind === 'many' ? 'maxItems' : 'maxLength'])
  return {
    name,
    label: asText(schema['title']) || name,
    note: asText(schema['description']),
    kind,
    inputType: INPUT_TYPES[asText(schema['format'])] ?? 'text',
    isLong: kind === 'text' && (most === null || most > 200) && schema['format'] === undefined,
    isRequired,
    isWhole: type === 'integer',
    choices,
    initial: schema['default'],
    least: asNumber(schema[isNumber ? 'minimum' : kind === 'many' ? 'minItems' : 'minLength']),
    most,
  }
}

/** Choices are written in two ways: `enum` with `enumNames`, or constants with titles. */
function choicesOf(schema: JsonObject): FieldChoice[] {
  const titled = schema['oneOf'] ?? schema['anyOf']
  if (Array.isArray(titled)) {
    return titled.map(asObject).map((each) => ({
      value: asText(each['const']),
      label: asText(each['title']) || asText(each['const']),
    }))
  }
  if (!Array.isArray(schema['enum'])) return []
  const names = Array.isArray(schema['enumNames']) ? schema['enumNames'] : []
  return schema['enum'].map((value, index) => ({
    value: String(value),
    label: asText(names[index]) || String(value),
  }))
}

export type Answers = { content: JsonObject; problems: Record<string, string> }

export function readAnswers(fields: readonly Field[], form: FormData): Answers {
  const content: JsonObject = {}
  const problems: Record<string, string> = {}
  for (const field of fields) {
    const problem = readOne(field, form, content)
    if (problem !== null) problems[field.name] = problem
  }
  return { content, problems }
}

function readOne(field: Field, form: FormData, content: JsonObject): string | null {
  if (field.kind === 'boolean') {
    content[field.name] = form.get(field.name) !== null
    return null
  }
  if (field.kind === 'many') {
    const chosen = form.getAll(field.name).map(String)
    if (field.least !== null && chosen.length < field.least)
      return `Choose at least ${field.least}.`
    if (field.most !== null && chosen.length > field.most) return `Choose at most ${field.most}.`
    if (chosen.length > 0 || field.isRequired) content[field.name] = chosen
    return null
  }
  const text = String(form.get(field.name) ?? '')
  if (text.trim() === '') return field.isRequired ? 'Required.' : null
  return field.kind === 'number' ? readNumber(field, text, content) : readText(field, text, content)
}

function readText(field: Field, text: string, content: JsonObject): string | null {
  if (field.least !== null && text.length < field.least)
    return `Enter at least ${plural(field.least, 'character')}.`
  if (field.most !== null && text.length > field.most) return `Enter at most ${plural(field.most, 'character')}.`
  content[field.name] = text
  return null
}

function readNumber(field: Field, text: string, content: JsonObject): string | null {
  const value = Number(text.trim().replace(',', '.'))
  if (!Number.isFinite(value)) return 'Enter a number.'
  if (field.isWhole && !Number.isInteger(value)) return 'Enter a whole number.'
  if (field.least !== null && value < field.least) return `Enter ${field.least} or more.`
  if (field.most !== null && value > field.most) return `Enter ${field.most} or less.`
  content[field.name] = value
  return null
}

function asObject(value: unknown): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : {}
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function asNumber(value: unknown): number | null {
  return typeof value === 'number' ? value : null
}
