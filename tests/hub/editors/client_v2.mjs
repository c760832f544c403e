// The official TypeScript SDK's client of ACP 2: on stdio, Streamable HTTP or a WebSocket. It reads
// an order from standard input: where the SDK is, how to connect, the folder, where to resume and
// from which cursor, the prompts, whether its handlers throw. At the end it writes what it saw.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const order = JSON.parse(await text(process.stdin));
const load = (path) => import(pathToFileURL(`${order.sdk}/${path}`));
const acp = await load("v2/unstable/acp.js");
const { agent: calls, client: callbacks } = acp.methods;
const answers = [], updates = [], permissions = [], errors = [];
let child, isDeleted = order.kind !== "http", onUpdate = () => {};

class HeaderWebSocket extends WebSocket {
  constructor(url, protocols, options) {
    super(url, { protocols: protocols ?? [], headers: Object.fromEntries(new Headers(options.headers)) });
  }
}

async function open() {
  if (order.kind === "stdio") {
    const [program, ...rest] = order.command;
    child = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"], env: order.env, cwd: order.folder });
    return acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  }
  if (order.kind === "ws") {
    const { createWebSocketStream } = await load("transports/ws-stream.js");
    return createWebSocketStream(order.url, { headers: order.headers, WebSocket: HeaderWebSocket });
  }
  const { createHttpStream } = await load("transports/http-stream.js");
  const noted = async (url, init) => {
    const response = await fetch(url, init);
    if (init.method === "DELETE") isDeleted = true;
    return response;
  };
  return createHttpStream(order.url, { headers: order.headers, fetch: noted });
}

const app = acp
  .client({ name: "client-v2" })
  .onNotification(callbacks.session.update, ({ params }) => {
    updates.push(params);
    onUpdate();
    if (order.throws) throw new Error("a handler of the client failed");
  })
  .onRequest(callbacks.session.requestPermission, ({ params }) => {
    permissions.push(params);
    if (order.throws) throw new Error("a handler of the client failed");
    const option = params.options.find((each) => each.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

async function call(agent, method, params) {
  try {
    answers.push(await agent.request(method, params));
  } catch (error) {
    errors.push({ code: error.code, message: error.message, data: error.data });
    answers.push(null);
  }
  return answers.at(-1);
}

const ends = () => updates.filter(({ update }) => update.sessionUpdate === "state_update" && update.stopReason).length;
const idle = (count) =>
  new Promise((resolve) => {
    onUpdate = () => ends() > count && resolve();
    onUpdate();
  });

console.error = () => {};
await app.connectWith(await open(), async (agent) => {
  const info = { name: "client-v2", version: "1" };
  await call(agent, calls.initialize, { protocolVersion: 2, info, capabilities: {} });
  const where = { cwd: order.folder };
  let sessionId = order.resume;
  if (order.resume) await call(agent, calls.session.resume, { ...where, sessionId, replayFrom: order.replayFrom });
  else sessionId = (await call(agent, calls.session.new, where)).sessionId;
  // The SDK resolves an answer before it calls the handler of the message in front of it.
  await new Promise((resolve) => setImmediate(resolve));
  answers.push({ replayed: updates.length });
  for (const prompt of order.prompts) {
    const count = ends();
    await call(agent, calls.session.prompt, { sessionId, prompt: [{ type: "text", text: prompt }] });
    await idle(count);
  }
  await call(agent, calls.session.list, {});
});
if (child) {
  child.stdin.end();
  await once(child, "exit");
}
// The connection is closed with DELETE, which is not awaited by the SDK.
while (!isDeleted) await new Promise((resolve) => setTimeout(resolve, 5));
process.stdout.write(JSON.stringify({ answers, updates, permissions, errors }));
