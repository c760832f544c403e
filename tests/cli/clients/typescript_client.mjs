// A client of the official TypeScript SDK, of either version, on stdio, Streamable HTTP or a
// WebSocket. It reads an order from standard input: where the SDK is, the version, how to connect,
// the folder, and the prompts, each with whether the client's handlers throw meanwhile. At the end
// it writes what it saw.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const order = JSON.parse(await text(process.stdin));
const load = (path) => import(pathToFileURL(`${order.sdk}/${path}`));
const acp = await load(order.version === 1 ? "v1/stable/acp.js" : "v2/unstable/acp.js");
const { agent: calls, client: callbacks } = acp.methods;
const texts = [], stops = [], errors = [];
let child, asked = 0, throws = false, isDeleted = order.kind !== "http", onStop = () => {};

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
  .client({ name: "client" })
  .onNotification(callbacks.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === "agent_message_chunk") texts.push(update.content.text);
    // Of version 2: a whole message.
    if (update.sessionUpdate === "agent_message") for (const block of update.content ?? []) texts.push(block.text);
    if (update.sessionUpdate === "state_update" && update.stopReason) onStop(update.stopReason);
    if (throws) throw new Error("a handler of the client failed");
  })
  .onRequest(callbacks.session.requestPermission, ({ params }) => {
    asked += 1;
    if (throws) throw new Error("a handler of the client failed");
    const option = params.options.find((each) => each.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

async function prompt(agent, sessionId, words) {
  const ended = new Promise((resolve) => (onStop = resolve));
  const answer = await agent.request(calls.session.prompt, { sessionId, prompt: [{ type: "text", text: words }] });
  return order.version === 1 ? answer.stopReason : await ended;
}

// The SDK resolves an answer before it calls the handlers of the messages in front of it.
const settled = () => new Promise((resolve) => setImmediate(resolve));

console.error = () => {};
let version, opened, listed;
await app.connectWith(await open(), async (agent) => {
  const info = { name: "client", version: "1" };
  const hello =
    order.version === 1
      ? { protocolVersion: 1, clientInfo: info, clientCapabilities: {} }
      : { protocolVersion: 2, info, capabilities: {} };
  version = (await agent.request(calls.initialize, hello)).protocolVersion;
  const where = { cwd: order.folder, mcpServers: [] };
  const sessionId = order.load ?? (await agent.request(calls.session.new, where)).sessionId;
  if (order.load && order.version === 1) await agent.request(calls.session.load, { ...where, sessionId });
  if (order.load && order.version === 2)
    await agent.request(calls.session.resume, { ...where, sessionId, replayFrom: { type: "start" } });
  opened = sessionId;
  await settled();
  for (const each of order.prompts) {
    throws = each.throws;
    try {
      stops.push(await prompt(agent, sessionId, each.text));
    } catch (error) {
      errors.push({ code: error.code, message: error.message });
    }
  }
  const { sessions } = await agent.request(calls.session.list, {});
  listed = sessions.filter((each) => each.sessionId === sessionId).length;
  await settled();
});
if (child) {
  child.stdin.end();
  await once(child, "exit");
}
// The connection is closed with DELETE, which the SDK does not wait for.
while (!isDeleted) await new Promise((resolve) => setTimeout(resolve, 5));
process.stdout.write(JSON.stringify({ session_id: opened, version, texts, stops, errors, asked, listed }));
