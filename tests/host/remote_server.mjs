// An agent on the official TypeScript SDK's server for Streamable HTTP. Arguments: the SDK's folder.
// It prints its port, and ends with its standard input.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const load = (path) => import(pathToFileURL(`${process.argv[2]}/${path}`));
const acp = await load("v1/stable/acp.js");
const { AcpServer } = await load("transports/server.js");
const { createNodeHttpHandler } = await load("transports/node-adapter.js");
const { agent: calls, client: callbacks } = acp.methods;
const said = [];
let last = 0;

const chunk = (sessionId, text) => ({
  sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
});

function makeAgent() {
  return acp
    .agent({ name: "sdk-server" })
    .onRequest(calls.initialize, () => ({
      protocolVersion: 1, agentCapabilities: { loadSession: true }, agentInfo: { name: "sdk", version: "1" },
    }))
    .onRequest(calls.session.new, () => ({ sessionId: `s${++last}` }))
    .onRequest(calls.session.load, async ({ params, client }) => {
      for (const text of said) await client.notify(callbacks.session.update, chunk(params.sessionId, text));
      return {};
    })
    .onRequest(calls.session.prompt, async ({ params, client }) => {
      const [{ text }] = params.prompt;
      if (text === "die") process.exit(1);
      if (text === "ask") {
        const options = [{ optionId: "yes", name: "Yes", kind: "allow_once" }];
        const toolCall = { toolCallId: "t", title: "Write" };
        const { outcome } = await client.request(callbacks.session.requestPermission, {
          sessionId: params.sessionId, toolCall, options,
        });
        await client.notify(callbacks.session.update, chunk(params.sessionId, outcome.optionId ?? "none"));
      }
      for (let number = 0; number < 50; number++) {
        said.push(`${number} `);
        await client.notify(callbacks.session.update, chunk(params.sessionId, `${number} `));
      }
      return { stopReason: "end_turn" };
    });
}

const server = createServer(createNodeHttpHandler(new AcpServer({ createAgent: makeAgent })));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.on("end", () => process.exit(0)).resume();
