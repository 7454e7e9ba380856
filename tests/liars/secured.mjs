// A stranger, or a member, at a port with TLS: `node secured.mjs PROTO FACTS ADDRESS KIND`. Says as one JSON object how
// its link ended, and whether the other side has proven who it is.
//
// An independent implementation of certificates and proofs: DER by hand, signatures by node:crypto, streams by grpc-js.

import crypto from "node:crypto";
import grpc from "@grpc/grpc-js";
import { Key, Run } from "./protocol.mjs";

const [protoPath, facts, address, kind] = process.argv.slice(2);
const run = new Run(protoPath, JSON.parse(facts));
const { extension, valid_seconds: validSeconds } = run.facts.tls;
const sha256 = (data) => crypto.createHash("sha256").update(data).digest();

// DER

function tlv(tag, ...parts) {
  const body = Buffer.concat(parts);
  let length = Buffer.from([body.length]);
  if (body.length > 127) {
    const digits = body.length.toString(16);
    const bytes = Buffer.from(digits.length % 2 ? `0${digits}` : digits, "hex");
    length = Buffer.concat([Buffer.from([0x80 | bytes.length]), bytes]);
  }
  return Buffer.concat([Buffer.from([tag]), length, body]);
}

const sequence = (...parts) => tlv(0x30, ...parts);
const octets = (...parts) => tlv(0x04, ...parts);
const whole = (bytes) => tlv(0x02, bytes[0] & 0x80 ? Buffer.concat([Buffer.alloc(1), bytes]) : bytes);

function oid(text) {
  const [first, second, ...rest] = text.split(".").map(BigInt);
  const groups = [40n * first + second, ...rest].map((arc) => {
    const bytes = [Number(arc & 127n)];
    for (let left = arc >> 7n; left > 0n; left >>= 7n) bytes.unshift(Number(left & 127n) | 0x80);
    return Buffer.from(bytes);
  });
  return tlv(0x06, ...groups);
}

const ECDSA_SHA256 = sequence(oid("1.2.840.10045.4.3.2"));
const title = (text) => sequence(tlv(0x31, sequence(oid("2.5.4.3"), tlv(0x0c, Buffer.from(text)))));
const time = (seconds) => tlv(0x18, Buffer.from(new Date(1000 * seconds).toISOString().replace(/[-:T]|\.\d+/g, "")));
const pem = (label, der) => `-----BEGIN ${label}-----\n${der.toString("base64").match(/.{1,64}/g).join("\n")}\n-----END ${label}-----\n`;

// Keys and certificates

const newChannel = () => crypto.generateKeyPairSync("ec", { namedCurve: "prime256v1" });
const spki = (channel) => channel.publicKey.export({ type: "spki", format: "der" });

function authorityKey() {
  const pair = crypto.createECDH("prime256v1");
  const secret = sha256("seedflood authority 1\0");
  const point = pair.setPrivateKey(secret) ?? pair.getPublicKey();
  const at = (from) => pair.getPublicKey().subarray(from, from + 32).toString("base64url");
  return point && crypto.createPrivateKey({
    format: "jwk", key: { kty: "EC", crv: "P-256", d: secret.toString("base64url"), x: at(1), y: at(33) },
  });
}

function stamp(seconds) {
  const buffer = Buffer.alloc(8);
  buffer.writeBigInt64BE(BigInt(seconds));
  return buffer;
}

function statementOf(key, channel, begin, end) {
  const said = [Buffer.from("seedflood channel 1\0"), sha256(spki(channel)), stamp(begin), stamp(end)];
  return Buffer.concat([key.public, key.sign(...said)]);
}

function certificate(channel, statement, begin, end, authority) {
  const extensions = [
    sequence(oid("2.5.29.17"), octets(sequence(tlv(0x82, Buffer.from("seedflood"))))),
    sequence(oid(extension), octets(statement)),
  ];
  const body = sequence(
    tlv(0xa0, whole(Buffer.from([2]))), whole(Buffer.concat([Buffer.from([1]), crypto.randomBytes(7)])), ECDSA_SHA256, title("seedflood authority"),
    sequence(time(begin), time(end)), title("a stranger"), spki(channel), tlv(0xa3, sequence(...extensions)),
  );
  const signature = crypto.sign("sha256", body, authority);
  return pem("CERTIFICATE", sequence(body, ECDSA_SHA256, tlv(0x03, Buffer.alloc(1), signature)));
}

// Who it is

const key = new Key(Buffer.from(run.facts.seed, "hex"));
const another = new Key();
const channel = newChannel();
const now = Math.floor(Date.now() / 1000);
const [begin, end] = kind === "expired" ? [now - 7200, now - 3600] : [now - 3600, now + validSeconds];
const statements = {
  unsigned: () => Buffer.alloc(96),
  stolen: () => statementOf(another, newChannel(), begin, end),
  prolonged: () => statementOf(key, channel, begin, begin + 60),
};
const statement = (statements[kind] ?? (() => statementOf(key, channel, begin, end)))();
const authority = kind === "foreign" ? newChannel().privateKey : authorityKey();
const chain = certificate(channel, statement, begin, end, authority);
const secret = channel.privateKey.export({ type: "pkcs8", format: "pem" });
const root = Buffer.from(run.facts.tls.authority);
const shown = kind === "none" ? [] : [Buffer.from(secret), Buffer.from(chain)];
const credentials = grpc.credentials.createSsl(root, ...(shown.length ? shown : [null, null]));
const client = new grpc.Client(
  address, kind === "plain" ? grpc.credentials.createInsecure() : credentials,
  { "grpc.ssl_target_name_override": "seedflood", "grpc.use_local_subchannel_pool": 1 },
);

// What it says

const said = { kind, key: key.public.toString("hex"), proven: null, frames: 0, code: 0, details: "" };
const raw = (bytes) => bytes;

function judge(metadata) {
  const [proof] = metadata.get("seedflood-proof-bin");
  if (!proof) return;
  const signed = Buffer.concat([Buffer.from("seedflood acceptance 1\0"), sha256(spki(channel))]);
  const der = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), proof.subarray(0, 32)]);
  const origin = crypto.createPublicKey({ key: der, format: "der", type: "spki" });
  if (crypto.verify(null, signed, origin, proof.subarray(32))) said.proven = proof.subarray(0, 32).toString("hex");
}

const call = client.makeBidiStreamRequest("/seedflood.wire.Flood/Link", raw, raw, new grpc.Metadata());
const status = new Promise((resolve) => call.on("status", resolve));
call.on("error", () => {});
call.on("metadata", judge);
call.on("data", (frame) => {
  if (said.frames++ === 0 && run.decode(frame).kind === "hello") call.end(); // it has linked: that is all it wants
});
call.write(run.hello(kind === "another" ? another : key, { name: "stranger" }));
const { code, details } = await status;
console.log(JSON.stringify({ ...said, code, details }));
client.close();
