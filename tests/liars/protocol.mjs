// What a member of a run must know to be let in: the wire contract from the .proto, and what signatures cover.

import crypto from "node:crypto";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

export const STEP_MAX = Number.MAX_SAFE_INTEGER;
const OPTIONS = { keepCase: true, longs: String, oneofs: true };
export const SERVER_NAME = "seedflood";
const CHANNEL = {
  "grpc.use_local_subchannel_pool": 1, "grpc.max_send_message_length": 64 << 20, "grpc.ssl_target_name_override": SERVER_NAME,
};

const raw = (bytes) => bytes;

function integer(value, bytes) {
  const buffer = Buffer.alloc(bytes);
  let rest = BigInt.asUintN(8 * bytes, BigInt(value));
  for (let k = bytes - 1; k >= 0; k -= 1, rest >>= 8n) buffer[k] = Number(rest & 255n);
  return buffer;
}

export class Key {
  // seed: 32 bytes, for one who was here before.
  constructor(seed = crypto.randomBytes(32)) {
    const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
    this.private = crypto.createPrivateKey({ key: der, format: "der", type: "pkcs8" });
    this.public = crypto.createPublicKey(this.private).export({ type: "spki", format: "der" }).subarray(-32);
    this.origin = crypto.createHash("sha256").update(this.public).digest().readBigUInt64BE().toString();
  }

  sign(...parts) {
    return crypto.sign(null, Buffer.concat(parts), this.private);
  }
}

export class Run {
  // facts: {run_id, base_digest} in hex, and what else the daemons' own configuration says.
  constructor(protoPath, facts) {
    const service = loader.loadSync(protoPath, OPTIONS)["seedflood.wire.Flood"];
    this.encode = service.Link.requestSerialize;
    this.decode = service.Link.requestDeserialize;
    this.id = Buffer.from(facts.run_id, "hex");
    this.base = Buffer.from(facts.base_digest, "hex");
    this.facts = facts;
  }

  member(key, { name = "liar", incarnation = Math.floor(Date.now() / 1000), version = 1, neighbours = [], first_step = STEP_MAX } = {}) {
    const label = Buffer.from(name);
    const signature = key.sign(
      Buffer.from(this.facts.statement.domain), this.id, key.public, integer(label.length, 2), label,
      integer(incarnation, 8), integer(version, 8), integer(first_step, 8), integer(-2, 8),
      integer(neighbours.length, 2), ...neighbours.map((origin) => integer(origin, 8)),
      Buffer.alloc(this.facts.statement.zeros), // no delay, nothing closed
    );
    return { public_key: key.public, name, incarnation, version, neighbours, first_step: String(first_step), signature };
  }

  // Of one update. signature: of another one, if it is given.
  bundle(key, step, { scalar = 1, skipped = 0, origin = key.origin, loss = 1 << 11, signature } = {}) {
    const body = Buffer.concat([
      integer(skipped ? 128 : 0, 1), integer(step, 4), skipped ? integer(skipped, 4) : Buffer.alloc(0),
      integer(loss, 2), integer(scalar, 4),
    ]);
    return { origin, data: Buffer.concat([body, signature ?? key.sign(Buffer.from("seedflood bundle 3\0"), this.id, key.public, body)]) };
  }

  updates(bundles) {
    return this.encode({
      updates: { origins: bundles.map((one) => one.origin), bundles: Buffer.concat(bundles.map((one) => one.data)) },
    });
  }

  // What stands in such a frame, if each bundle has one update.
  read({ origins, bundles }) {
    let at = 0;
    return origins.map((origin) => {
      const step = bundles.readUInt32BE(at + 1), skips = bundles[at] === 128;
      at += skips ? 9 : 5;
      const [loss, scalar] = [bundles.readUInt16BE(at), bundles.readInt32BE(at + 2)];
      at += 70;
      return { origin, step, loss, scalar, signature: bundles.subarray(at - 64, at) };
    });
  }

  hello(key, { frontier = {}, members = [], ...said } = {}) {
    return this.encode({
      hello: {
        protocol_version: this.facts.protocol_version, run_id: this.id, base_digest: this.base,
        member: this.member(key, said), members, frontier,
      },
    });
  }
}

// A stream on which frames are bytes. `until` ends with it; `frames` counts what came.
export class Link {
  // The facts of the run have the certificate that is shown. options: of the channel.
  constructor(run, address, { reads = true, options = {} } = {}) {
    const { tls, key, chain } = run.facts;
    const credentials = grpc.credentials.createSsl(...[tls.authority, key, chain].map((one) => Buffer.from(one)));
    this.run = run;
    this.client = new grpc.Client(address, credentials, { ...CHANNEL, ...options });
    this.call = this.client.makeBidiStreamRequest("/seedflood.wire.Flood/Link", raw, raw, new grpc.Metadata());
    this.frames = 0;
    this.heard = () => {};
    this.isOpen = true;
    this.end = "";
    this.until = new Promise((resolve) => {
      const ended = (status) => {
        this.isOpen = false;
        this.end = status?.details ?? "ended";
        resolve(this.end);
      };
      this.call.on("status", ended);
      this.call.on("error", ended);
    });
    if (reads) this.call.on("data", (frame) => this.take(frame));
  }

  take(frame) {
    this.frames += 1;
    this.heard(this.run.decode(frame), frame);
  }

  // Resolves when there is room for more, or the link is over.
  async write(frame) {
    if (!this.isOpen) return;
    if (!this.call.write(frame)) {
      await Promise.race([new Promise((resolve) => this.call.once("drain", resolve)), this.until]);
    }
  }

  close() {
    this.call.cancel();
    this.client.close();
  }
}
