// A member that attacks a daemon behind TLS: `node attacker.mjs PROTO FACTS ADDRESS HTTP KIND`. It has a key and a
// certificate of its own, and speaks on links, or on bare sockets.
//
// Says what came of it as one JSON object: how each link ended, and how many sockets were closed by the daemon.

import crypto from "node:crypto";
import http2 from "node:http2";
import net from "node:net";
import tls from "node:tls";
import { Key, Link, Run, SERVER_NAME } from "./protocol.mjs";

const [protoPath, facts, address, http, kind] = process.argv.slice(2);
const run = new Run(protoPath, JSON.parse(facts));
const key = new Key(Buffer.from(run.facts.seed, "hex"));
const own = { ca: run.facts.tls.authority, cert: run.facts.chain, key: run.facts.key };
const options = { "grpc.max_send_message_length": 256 << 20 };
const said = { kind, links: 0, sent: 0, ends: [], opened: 0, closed: 0 };
const rest = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const PATIENCE = 20_000;

// A link on which this work is done after a hello. Resolves when the daemon has ended it.
async function attack(work, { hello = {}, seconds = PATIENCE / 1000, where = address } = {}) {
  const link = new Link(run, where, { options });
  const heard = new Promise((resolve) => link.call.once("data", resolve));
  await link.write(run.hello(key, { name: run.facts.name, ...hello }));
  await Promise.race([heard, link.until, rest(PATIENCE)]);
  if (link.isOpen) {
    said.links += 1;
    await Promise.race([work(link), link.until]);
    await Promise.race([link.until, rest(1000 * seconds)]);
  }
  said.ends.push(link.isOpen ? "open" : link.end);
  link.close();
}

// Resolves when the daemon has read all that it was sent before.
async function heeded(link) {
  const answered = new Promise((resolve) => {
    link.heard = (frame) => { if (frame.kind === "pong") resolve(); };
  });
  await link.write(run.encode({ ping: { sent_at: 1 } }));
  await Promise.race([answered, rest(PATIENCE)]);
}

// The roster that the operator signed first, under this serial.
function roster(serial) {
  const entries = run.facts.roster.entries.map((one) => ({ ...one, public_key: Buffer.from(one.public_key, "hex") }));
  return run.encode({ roster: { serial, entries, signature: Buffer.from(run.facts.roster.signature, "hex") } });
}

// Calls `make` with each new update of somebody else, and sends what it makes, until the link is over.
const echo = (make) => async (link) => {
  link.heard = (frame) => {
    if (frame.kind !== "updates") return;
    for (const one of run.read(frame.updates)) {
      if (!link.isOpen) return;
      said.sent += 1;
      link.write(run.updates([make(one)]));
    }
  };
  await rest(PATIENCE);
};

// Opens sockets, and waits until the daemon has closed them.
async function crowd(count, open, patience = 30_000) {
  const sockets = [], ends = [];
  while (sockets.length < count) {
    const socket = open();
    sockets.push(socket);
    said.opened += 1;
    const connected = new Promise((resolve) => socket.once("connect", resolve));
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("error", () => {}).on("data", () => {}).on("end", () => socket.end());
    ends.push(closed.then(() => { said.closed += 1; }));
    if (sockets.length % 20 === 0) await Promise.race([connected, closed]); // more at once than a port's queue holds are lost
  }
  await Promise.race([Promise.all(ends), rest(patience)]);
  for (const socket of sockets) socket.destroy();
}

const [host, port] = [address.slice(0, address.lastIndexOf(":")), Number(address.slice(address.lastIndexOf(":") + 1))];
const [httpHost, httpPort] = [http.slice(0, http.lastIndexOf(":")), Number(http.slice(http.lastIndexOf(":") + 1))];

function plain(place, ...bytes) {
  const socket = net.connect(place === "grpc" ? port : httpPort, place === "grpc" ? host : httpHost);
  for (const one of bytes) socket.write(one);
  return socket;
}

// A finished handshake with a certificate that is one, and then these bytes.
function handshaken(...bytes) {
  const socket = tls.connect({ host, port, ...own, servername: SERVER_NAME, ALPNProtocols: ["h2"] });
  socket.once("secureConnect", () => {
    said.links += 1;
    for (const one of bytes) socket.write(one);
  });
  return socket;
}

// The first bytes of a TLS handshake, as a client of today sends them.
async function handshake() {
  const server = net.createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const first = new Promise((resolve) => server.once("connection", (socket) => {
    socket.on("error", () => {});
    socket.once("data", (data) => { socket.destroy(); resolve(data); });
  }));
  tls.connect({ port: server.address().port, host: "127.0.0.1", ALPNProtocols: ["h2"] }).on("error", () => {});
  const hello = await first;
  server.close();
  return hello;
}

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const kinds = {
  // A true member says the next update of somebody else: with the signature of the one before, with its own, and with a
  // true one of another run.
  forgery: () => attack(echo((bundle) => run.bundle(key, bundle.step + 1, { ...bundle, scalar: bundle.scalar + 1 }))),
  usurpation: () => attack(echo((bundle) => run.bundle(key, bundle.step + 1, { origin: bundle.origin }))),
  replay: () => {
    const before = new Run(protoPath, { ...run.facts, run_id: run.facts.run_before });
    const another = new Key(Buffer.from(run.facts.another, "hex"));
    return attack(echo((bundle) => before.bundle(another, bundle.step + 1)));
  },

  // Two hosts at once are told two contents of each step, under one true key, until one of them says the proof. Where a
  // host hears the other content from its neighbour first, nobody differs: so one step, or a few, would not do. And they
  // differ by more than the schedule of a long run rounds away, or all models would be the same.
  async equivocation() {
    const links = [], incarnation = Math.floor(Date.now() / 1000);
    let last = -1;
    const tell = async (link) => {
      links.push(link);
      link.heard = (frame) => {
        if (frame.kind === "equivocation") said.proven = true;
        if (frame.kind !== "updates" || links.length < 2 || said.proven) return;
        const step = Math.max(...run.read(frame.updates).map((one) => one.step));
        if (step <= last) return;
        links.forEach((one, k) => one.write(run.updates([run.bundle(key, step, { scalar: 1000 * k })])));
        last = step;
        said.sent += 1;
      };
    };
    const places = [address, run.facts.elsewhere];
    await Promise.all(places.map((where) => attack(tell, { where, seconds: 60, hello: { incarnation } })));
  },

  // Who is on no roster, what a member passes on of such, and rosters that do not count.
  stranger: () => attack(() => {}),
  relayed: () => attack(async (link) => {
    for (let k = 0; k < 100; k += 1) {
      const another = new Key();
      await link.write(run.encode({ members: { members: [run.member(another, { name: "nobody" })] } }));
      await link.write(run.updates([run.bundle(another, k)]));
    }
    await heeded(link);
  }, { seconds: 0 }),
  outdated: () => attack(async (link) => {
    await link.write(roster(run.facts.roster.serial));
    await heeded(link);
  }, { seconds: 0 }),
  forged: () => attack((link) => link.write(roster(1000))),

  // Stays until its link ends, and dials again.
  async removed() {
    await attack(() => {});
    await attack(() => {});
  },

  flood: () => attack((link) => link.write(Buffer.alloc(100 << 20))),

  // Numbers at the ends of what their types hold.
  skipped: () => attack((link) => link.write(run.updates([run.bundle(key, 0, { skipped: 2 ** 32 - 1 })]))),
  payload: () => attack((link) => link.write(run.updates([{ origin: key.origin, data: Buffer.from("400000000000000000", "hex") }]))),
  ping: () => attack((link) => link.write(run.encode({ ping: { sent_at: NaN } }))),

  // First frames that are never finished.
  async unfinished() {
    const most = Buffer.alloc(4_000_000);
    most.writeUInt32BE(most.length, 1);
    const paths = ["/seedflood.wire.Flood/Link", "/grpc.health.v1.Health/Check"];
    const sessions = [], ends = [];
    for (let k = 0; k < 128; k += 1) {
      if (k % 16 === 0) sessions.push(http2.connect(`https://${address}`, { ...own, servername: SERVER_NAME }).on("error", () => {}));
      const head = { ":method": "POST", ":path": paths[k % 2], "content-type": "application/grpc", te: "trailers" };
      const stream = sessions.at(-1).request(head, { endStream: false });
      said.opened += 1;
      ends.push(new Promise((resolve) => {
        stream.on("error", () => {}).on("data", () => {}).on("response", resolve);
        stream.write(most, resolve);
      }));
    }
    await Promise.race([Promise.all(ends), rest(5_000)]); // sent or refused, as far as the window allows
    for (const session of sessions) session.destroy();
  },

  // Half a TLS handshake, half an HTTP/2 preface, half a request, and nothing at all.
  async slow() {
    const hello = await handshake();
    await Promise.all([
      crowd(150, () => plain("grpc")),
      crowd(150, () => plain("grpc", hello.subarray(0, hello.length / 2))),
      crowd(50, () => handshaken()),
      crowd(50, () => handshaken(PREFACE.slice(0, 12))),
      crowd(200, () => plain("http")),
      crowd(200, () => plain("http", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")),
      crowd(100, () => plain("http", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /livez HT")),
    ]);
  },
  noise: () => Promise.all([
    crowd(100, () => plain("grpc", crypto.randomBytes(65_536))),
    crowd(100, () => plain("http", crypto.randomBytes(65_536))),
    crowd(20, () => handshaken(crypto.randomBytes(65_536))),
    crowd(20, () => handshaken(PREFACE, crypto.randomBytes(65_536))),
  ]),
  thousand: async () => {
    await crowd(1000, () => handshaken(), 2_000);
  },
};

await kinds[kind]();
console.log(JSON.stringify(said));
process.exit(0);
