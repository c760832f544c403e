/// <reference lib="webworker" />
export {}
