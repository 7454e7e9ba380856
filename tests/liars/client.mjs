// A member of a run that lies: `node client.mjs PROTO FACTS ADDRESS KIND SECONDS`. Says what it did as one JSON object.
//
// Every kind does its worst for so many seconds, and links again at once when it is cut off.

import crypto from "node:crypto";
import net from "node:net";
import zlib from "node:zlib";
import { Key, Link, Run, STEP_MAX } from "./protocol.mjs";

const [protoPath, facts, address, kind, seconds] = process.argv.slice(2);
const run = new Run(protoPath, JSON.parse(facts));
const key = new Key(Buffer.from(run.facts.seed, "hex"));
let end = Infinity;
const begin = () => { end = Date.now() + 1000 * Number(seconds); }; // not before all is made: that may take longer
const isTime = () => Date.now() < end;
const turn = () => new Promise(setImmediate);
const rest = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const said = { kind, links: 0, frames: 0, bytes: 0, heard: 0, ends: {} };

// Links, says `hello`, and does `work` with the link until it is over or time is up; then again.
async function always(work, { hello = {}, reads = true } = {}) {
  begin();
  for (let version = 1; isTime(); version += 1) {
    const link = new Link(run, address, { reads });
    const write = link.write.bind(link);
    link.write = async (frame) => {
      said.frames += 1;
      said.bytes += frame.length;
      await write(frame);
      if (said.frames % 64 === 0) await turn(); // so that what is heard is heard
    };
    const first = new Promise((resolve) => link.call.once("data", resolve));
    await link.write(typeof hello === "function" ? hello(version) : run.hello(key, { version, ...hello }));
    if (reads) await Promise.race([first, link.until, rest(2000)]);
    if (link.isOpen) said.links += 1;
    await Promise.race([work(link), link.until, rest(end - Date.now())]);
    said.heard += link.frames;
    if (!link.isOpen) said.ends[link.end.slice(0, 60)] = (said.ends[link.end.slice(0, 60)] ?? 0) + 1;
    link.close();
    await turn();
  }
}

const repeat = (make) => async (link) => {
  for (let k = 0; link.isOpen && isTime(); k += 1) await link.write(make(k, link));
};

const everything = (marks) => ({ origins: marks.map(([origin]) => origin), marks: marks.map(([, mark]) => mark) });
const ragged = (origins, ranges) => ({
  origins: Array.from({ length: origins }, (_, k) => String(k + 1)),
  marks: Array(origins).fill(1),
  range_counts: Array(origins).fill(ranges),
  ranges: Array(2 * origins * ranges).fill(1),
});

const kinds = {
  // Claims all that there will ever be, and answers the pull by sums that are made up.
  async sums() {
    const period = run.facts.refresh_period;
    const mark = run.facts.steps;
    const sum = Buffer.alloc(run.facts.epoch_bytes);
    for (let k = 0; k + 8 <= sum.length; k += 8) sum.writeBigInt64LE(1n << 62n, k);
    const forged = [zlib.deflateSync(sum), zlib.deflateSync(Buffer.alloc(64 << 20)), crypto.randomBytes(100_000)];
    const frontier = everything([...run.facts.origins, key.origin].map((origin) => [origin, mark]));
    await always(async (link) => {
      link.heard = async (frame) => {
        if (frame.kind !== "pull") return;
        const answers = frame.pull.id;
        for (let k = 0; link.isOpen && isTime(); k += 1) {
          const epoch = k % Math.floor(mark / period);
          const data = forged[k % forged.length];
          const covered = {
            origins: frontier.origins, marks: frontier.origins.map(() => 0),
            range_counts: frontier.origins.map(() => 1),
            ranges: frontier.origins.flatMap(() => [epoch * period || 1, period - 2]),
          };
          for (let at = 0; at < data.length; at += 65_536) {
            await link.write(run.encode({
              answers,
              epoch_part: {
                epoch, frontier: at ? null : covered, data: data.subarray(at, at + 65_536), is_last: at + 65_536 >= data.length,
              },
            }));
          }
        }
      };
      await repeat(() => run.encode({
        frontier_digest: { frontier_digest: crypto.randomBytes(32), before: String(STEP_MAX), members_digest: Buffer.alloc(16) },
      }))({ get isOpen() { return link.isOpen; }, write: async (frame) => { await link.write(frame); await rest(100); } });
    }, { hello: { frontier } });
  },

  async digests() {
    await always(repeat((k) => run.encode(k % 2
      ? { frontier_digest: { frontier_digest: crypto.randomBytes(32), before: String(STEP_MAX), members_digest: crypto.randomBytes(16) } }
      : { replica_digest: { frontier_digest: crypto.randomBytes(32), replica_digest: crypto.randomBytes(32) } })));
  },

  // Hellos that claim as many holes as there may be, and pulls that ask for what is between them.
  async frontiers() {
    const largest = run.encode({ pull: { id: 1, frontier: ragged(16, 1024) } });
    const pulls = [largest, run.encode({ pull: { id: 2, frontier: ragged(64, 1024) } })];
    let links = 0;
    await always(repeat((k) => pulls[k % 100 === 99 ? 1 : 0]), {
      hello: (version) => run.hello(key, { version, frontier: ragged(16, (links += 1) % 2 ? 1024 : 1) }),
    });
  },

  // Says something new of itself, thousands of times a second.
  async statements() {
    let version = 1000;
    await always(repeat(() => run.encode({
      members: { members: [run.member(key, { version: (version += 1), neighbours: run.facts.origins })] },
    })));
  },

  // Introduces people who do not exist.
  async strangers() {
    const keys = Array.from({ length: 512 }, () => new Key());
    const frames = [];
    for (let k = 0; k < keys.length; k += 256) {
      frames.push(run.encode({
        members: { members: keys.slice(k, k + 256).map((one, j) => run.member(one, { name: `nobody${k + j}` })) },
      }));
    }
    await always(repeat((k) => frames[k % frames.length]));
  },

  // Two contents under every step.
  async equivocation() {
    let step = 0;
    await always(repeat((k) => {
      step += k % 8 === 0;
      return run.updates([run.bundle(key, step, { scalar: k % 8 })]);
    }), { hello: { first_step: 0 } });
  },

  // Says again and again what the others have said.
  async replays() {
    const heard = [];
    await always(async (link) => {
      link.heard = (frame, bytes) => {
        if (frame.kind === "updates" && heard.length < 4096) heard.push(bytes);
      };
      await link.write(run.encode({ pull: { id: 1, frontier: {} } }));
      await rest(300);
      if (heard.length) await repeat((k) => heard[k % heard.length])(link);
    });
  },

  // Speaks of steps that nobody has come to, with holes between them.
  async future() {
    const bundles = Array.from({ length: 4096 }, (_, k) => run.bundle(key, run.facts.steps - 1 - 2 * k));
    const frames = [];
    for (let k = 0; k < bundles.length; k += 256) frames.push(run.updates(bundles.slice(k, k + 256)));
    await always(repeat((k) => frames[k % frames.length]), { hello: { first_step: 0 } });
  },

  async forgeries() {
    const bundles = Array.from({ length: 256 }, (_, k) => run.bundle(key, k));
    bundles[255] = run.bundle(key, 255, { signature: crypto.randomBytes(64) });
    const frame = run.updates(bundles);
    await always(repeat(() => frame), { hello: { first_step: 0 } });
  },

  // A hello of four megabytes; frames as large as they may be, and larger.
  async oversize() {
    const stranger = run.member(new Key(), { neighbours: Array(1000).fill("1") });
    const members = Array(440).fill(stranger);
    const large = run.encode({ members: { members } });
    const huge = crypto.randomBytes(6 << 20);
    let links = 0; // the first is a link, or a slow machine gets no further than the hello that is refused
    await always(repeat((k) => (k % 4 ? large : huge)), {
      hello: (version) => ((links += 1) % 2 ? run.hello(key, { version }) : run.hello(key, { version, members })),
    });
  },

  // Asks for everything, again before the first answer is over.
  async pulls() {
    const frontiers = [{}, ragged(16, 1024)];
    await always(async (link) => {
      link.heard = (frame) => {
        if (frame.answers !== "0") link.write(run.encode({ pull_more: { id: frame.answers } }));
      };
      await repeat((k) => run.encode({ pull: { id: k + 1, frontier: frontiers[k % 2] } }))(link);
    });
  },

  // Streams without a hello, and connections without anything.
  async halves() {
    const links = [], sockets = [];
    const [host, port] = [address.slice(0, address.lastIndexOf(":")), Number(address.slice(address.lastIndexOf(":") + 1))];
    begin();
    while (isTime()) {
      if (sockets.length < 300) sockets.push(net.connect(port, host).on("error", () => {}));
      links.push(new Link(run, address));
      said.frames += 1;
      if (links.length > 300) links.shift().close();
      await rest(2);
    }
    for (const one of links) one.close();
    for (const one of sockets) one.destroy();
  },

  async garbage() {
    await always(repeat((k) => (k % 2 ? crypto.randomBytes(1000) : run.encode({ ping: { sent_at: NaN } }))));
  },

  async pings() {
    await always(repeat((k) => run.encode(k % 2 ? { ping: { sent_at: k } } : { pong: { sent_at: k } })));
  },

  // Asks for everything and reads nothing.
  async deafness() {
    await always(repeat((k) => run.encode(k % 2 ? { ping: { sent_at: k } } : { pull: { id: k, frontier: {} } })), { reads: false });
  },
};

await kinds[kind]();
console.log(JSON.stringify(said));
process.exit(0);
