// The official TypeScript SDK's client. It reads an order from standard input: where the SDK is, the
// agent's command and folder, whom it may load, and the steps of the conversation. At the end it
// writes what it saw as one JSON object.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const order = JSON.parse(await text(process.stdin));
const acp = await import(pathToFileURL(order.sdk));
const { agent: calls, client: callbacks } = acp.methods;

const [program, ...rest] = order.command;
const child = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"] });
const ended = once(child, "exit");
const output = [], called = {}, answers = [], updates = [], permissions = [];
let answer = "cancelled", isAwaited = () => false, seen = () => {};

// Beside what the SDK makes of them: the bytes of the agent and the requests that they answer.
const input = Writable.toWeb(child.stdin).getWriter();
const recorded = new WritableStream({
  write: (bytes) => {
    for (const line of new TextDecoder().decode(bytes).split("\n").filter(Boolean)) {
      const message = JSON.parse(line);
      if ("id" in message && "method" in message) called[message.id] = message.method;
    }
    return input.write(bytes);
  },
  close: () => input.close(),
});
child.stdout.on("data", (bytes) => output.push(bytes));
const stream = acp.ndJsonStream(recorded, Readable.toWeb(child.stdout));

const app = acp
  .client({ name: "typescript-client" })
  .onNotification(callbacks.session.update, ({ params }) => {
    updates.push(params.update);
    if (isAwaited(params.update)) seen();
  })
  .onRequest(callbacks.session.requestPermission, ({ params }) => {
    permissions.push(params.toolCall);
    const option = params.options.find((each) => each.kind === answer);
    return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
  });

await app.connectWith(stream, async (agent) => {
  const hello = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} };
  answers.push(await agent.request(calls.initialize, hello));
  const where = { cwd: order.folder, mcpServers: [] };
  const opened = order.load
    ? await agent.request(calls.session.load, { ...where, sessionId: order.load })
    : await agent.request(calls.session.new, where);
  answers.push(opened);
  const sessionId = order.load ?? opened.sessionId;
  for (const step of order.steps) {
    if (step.mode) {
      answers.push(await agent.request(calls.session.setMode, { sessionId, modeId: step.mode }));
      continue;
    }
    answer = step.answer;
    const prompt = [{ type: "text", text: step.prompt }];
    const prompted = agent.request(calls.session.prompt, { sessionId, prompt });
    if (step.cancelAfter) {
      await new Promise((resolve) => {
        isAwaited = (update) => update.content?.text?.includes(step.cancelAfter);
        seen = resolve;
      });
      await agent.notify(calls.session.cancel, { sessionId });
    }
    answers.push(await prompted);
  }
});
child.stdin.end();
const [status] = await ended;
const report = { output: Buffer.concat(output).toString(), called, answers, updates, permissions, status };
process.stdout.write(JSON.stringify(report));
