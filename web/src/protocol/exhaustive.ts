// Switches over closed unions end here. A member that a switch forgets is a type error at the call;
// at run time only a value of a newer hub arrives, and the page ignores or refuses it.

/** For the default of a switch over values from the hub: newer ones are ignored. */
export function ignoreNewer(_value: never): null {
  return null
}

/** For the default of a switch over values that the page itself makes. */
export function assertNever(value: never): never {
  throw new Error(`unexpected value: ${JSON.stringify(value)}`)
}
