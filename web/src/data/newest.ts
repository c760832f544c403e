/** Answers may overtake each other: only one to a later question than the last is news. */
export class Newest {
  #asked = 0
  #answered = 0

  /** Call when asking; what is returned says, once, whether the answer is news. */
  ask(): () => boolean {
    const mine = ++this.#asked
    return () => {
      if (mine <= this.#answered) return false
      this.#answered = mine
      return true
    }
  }
}
