// The official TypeScript SDK's side: `typescript.mjs PEER receive FILE`, `roundtrip`, `send`.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [peer, what, file] = process.argv.slice(2);
const CALLS = 10_000, WINDOW = 64, SENT = 50_000;

function stopwatch() {
  const cpu = process.cpuUsage(), wall = performance.now();
  return (count, more = {}) => {
    const spent = process.cpuUsage(cpu), seconds = (performance.now() - wall) / 1e3;
    console.log(JSON.stringify({
      count,
      per_second: Math.round(count / seconds),
      cpu_us: +((spent.user + spent.system) / count).toFixed(3),
      rss_mb: +(process.resourceUsage().maxRSS / 1024).toFixed(1),
      ...more,
    }));
  };
}

function startAgent(...args) {
  const child = spawn("python3", [peer, ...args], { stdio: ["pipe", "pipe", "inherit"] });
  return acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
}

async function receive() {
  let count = 0;
  const app = acp.client({ name: "bench" })
    .onNotification(acp.methods.client.session.update, () => { count++; });
  await app.connectWith(startAgent(file), async (agent) => {
    await agent.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
    const report = stopwatch();
    await agent.request(acp.methods.agent.session.prompt, { sessionId: "s", prompt: [] });
    while (count < 100_000) await new Promise((resolve) => setImmediate(resolve));
    report(count);
  });
}

async function roundtrip() {
  await acp.client({ name: "bench" }).connectWith(startAgent(), async (agent) => {
    const call = () => agent.request(acp.methods.agent.session.setMode, { sessionId: "s", modeId: "code" });
    for (let i = 0; i < 500; i++) await call();
    const taken = [];
    for (let i = 0; i < CALLS; i++) { const start = performance.now(); await call(); taken.push(performance.now() - start); }
    taken.sort((a, b) => a - b);
    const work = async () => { for (let i = 0; i < Math.floor(CALLS / WINDOW); i++) await call(); };
    const report = stopwatch();
    await Promise.all(Array.from({ length: WINDOW }, work));
    report(Math.floor(CALLS / WINDOW) * WINDOW, {
      p50_us: +(taken[CALLS / 2] * 1e3).toFixed(1),
      p99_us: +(taken[CALLS * 99 / 100] * 1e3).toFixed(1),
    });
  });
}

async function send() {
  const drain = spawn("sh", ["-c", "cat > /dev/null"], { stdio: ["pipe", "inherit", "inherit"] });
  const stream = acp.ndJsonStream(Writable.toWeb(drain.stdin), new ReadableStream({}));
  const connection = acp.agent({ name: "bench" }).connect(stream);
  const one = (i) => connection.client.notify(acp.methods.client.session.update, {
    sessionId: "sess_1",
    update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `chunk number ${i} of text` } },
  });
  for (let i = 0; i < 500; i++) await one(i);
  const report = stopwatch();
  for (let i = 0; i < SENT; i++) await one(i);
  report(SENT);
}

await { receive, roundtrip, send }[what]();
process.exit(0);
