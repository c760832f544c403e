// The official TypeScript SDK's client over Streamable HTTP or a WebSocket. It reads an order from
// standard input: where the SDK is, the address and headers, the folder, whom it may load or resume,
// the prompts, and how it answers requests. At the end it writes what it saw as one JSON object.
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const order = JSON.parse(await text(process.stdin));
const load = (path) => import(pathToFileURL(`${order.sdk}/${path}`));
const acp = await load("v1/stable/acp.js");
const { agent: calls, client: callbacks } = acp.methods;
const answers = [], updates = [], permissions = [], errors = [], requests = [];

class HeaderWebSocket extends WebSocket {
  constructor(url, protocols, options) {
    super(url, { protocols: protocols ?? [], headers: Object.fromEntries(new Headers(options.headers)) });
  }
}

async function open() {
  if (order.kind === "ws") {
    const { createWebSocketStream } = await load("transports/ws-stream.js");
    return createWebSocketStream(order.url, { headers: order.headers, WebSocket: HeaderWebSocket });
  }
  const { createHttpStream } = await load("transports/http-stream.js");
  const recorded = async (url, init) => {
    const response = await fetch(url, init);
    const headers = new Headers(init.headers);
    requests.push([init.method, response.status, headers.get("acp-session-id") ?? ""]);
    return response;
  };
  return createHttpStream(order.url, { headers: order.headers, fetch: recorded });
}

const app = acp
  .client({ name: "remote-client" })
  .onNotification(callbacks.session.update, ({ params }) => {
    updates.push(params.update);
    if (order.throws) throw new Error("a handler of the client failed");
  })
  .onRequest(callbacks.session.requestPermission, ({ params }) => {
    permissions.push(params.toolCall);
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

console.error = () => {};
await app.connectWith(await open(), async (agent) => {
  await call(agent, calls.initialize, { protocolVersion: 1, clientCapabilities: {} });
  const where = { cwd: order.folder, mcpServers: [] };
  let sessionId = order.load ?? order.resume;
  if (order.load) await call(agent, calls.session.load, { ...where, sessionId });
  else if (order.resume) await call(agent, calls.session.resume, { ...where, sessionId });
  else sessionId = (await call(agent, calls.session.new, where)).sessionId;
  // What is shown when the answer to load is there.
  const loaded = updates.length;
  answers.push({ loaded });
  for (const prompt of order.prompts) {
    await call(agent, calls.session.prompt, { sessionId, prompt: [{ type: "text", text: prompt }] });
  }
  if (order.list) await call(agent, calls.session.list, {});
});
// The connection is closed with DELETE, which is not awaited by the SDK.
while (order.kind === "http" && !requests.some(([method]) => method === "DELETE")) {
  await new Promise((resolve) => setTimeout(resolve, 5));
}
process.stdout.write(JSON.stringify({ answers, updates, permissions, errors, requests }));
