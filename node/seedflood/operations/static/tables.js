// All hosts and how far they were heard; all links and their traffic; recent events.

import { byId, make, makeShape, reconcile, setAttribute, setText } from "./elements.js";
import { UNKNOWN, bytes, count, dateAndTime, decimal, duration, timeOfDay } from "./formats.js";
import { CROWD } from "./groups.js";
import { CONDITIONS, isLive, sortWorstFirst } from "./members.js";

const ROWS_MAX = 60;
const LAG_AXIS_STEPS_MIN = 20;

const LEVEL_SHAPES = { debug: "note", info: "note", warning: "silent", error: "fault", critical: "fault" };
const LEVELS = ["debug", "info", "warning", "error", "critical"];
const NOT_FACTS = new Set(["time", "timestamp", "level", "event", "node", "run"]);

/** In a crowd the worst hosts, as many as can be read, of those that have what is searched for in name or condition. */
export function showMembers(status, all, point) {
  const isCrowd = all.length > CROWD;
  const wanted = isCrowd ? byId("members-search").value.trim().toLowerCase() : "";
  const found = (member) => `${member.name} ${CONDITIONS[member.condition].word}`.toLowerCase().includes(wanted);
  const fitting = isCrowd ? sortWorstFirst(all.filter(found)) : all;
  const members = fitting.slice(0, isCrowd ? ROWS_MAX : undefined);
  byId("members-find").hidden = !isCrowd;
  setText(byId("members-count"), `${count(members.length)} of ${count(fitting.length)}, worst first`);
  const lags = all.filter((member) => isLive(member.condition)).map((member) => member.lag_steps ?? 0);
  const axis = Math.max(LAG_AXIS_STEPS_MIN, ...lags);
  setText(byId("lag-axis"), `Last ${count(axis)}`);
  byId("members-empty").hidden = all.length > 0;
  const hasReputations = all.some((member) => member.reputation !== null);
  byId("members").classList.toggle("has-reputations", hasReputations);
  byId("reputation-hint").hidden = !hasReputations;
  reconcile(byId("members").tBodies[0], members, {
    key: (member) => member.origin,
    create: (member) => {
      const row = make(
        "tr",
        {},
        make("th", { scope: "row" }),
        make("td", { class: "condition" }, makeShape("unknown"), make("span")),
        make("td", { class: "number reputation" }),
        make("td", { class: "number" }),
        make("td", { class: "bar wide" }, make("div", { class: "track" }, make("div"))),
        make("td", { class: "number" }),
      );
      row.addEventListener("pointerenter", () => point(member.origin));
      row.addEventListener("pointerleave", () => point(null));
      return row;
    },
    update: (row, member) => {
      const [name, condition, reputation, heard, bar, behind] = row.children;
      const { word, text } = CONDITIONS[member.condition];
      setAttribute(row, "class", member.condition);
      setText(name, member.name);
      const first = `first step ${member.first_step ?? UNKNOWN}`;
      const life = `incarnation ${member.incarnation ?? UNKNOWN}`;
      setAttribute(name, "title", [member.name, member.origin, first, life].join(" · "));
      setAttribute(condition, "title", text);
      setAttribute(
        condition.firstElementChild.firstElementChild,
        "href",
        `#shape-${CONDITIONS[member.condition].shape}`,
      );
      setText(condition.lastElementChild, word);
      setText(reputation, decimal(member.reputation, 1));
      reputation.classList.toggle("is-bad", member.contradicts === true);
      setText(heard, count(member.step));
      const lag = member.condition === "left" ? null : member.lag_steps;
      const share = lag === null ? 0 : Math.max(0, 1 - lag / axis);
      bar.firstElementChild.firstElementChild.style.width = `${(100 * share).toFixed(1)}%`;
      setText(behind, count(lag));
    },
  });
}

export function showLinks({ links }) {
  byId("links-empty").hidden = links.length > 0;
  reconcile(byId("links").tBodies[0], links, {
    key: (link) => link.origin ?? link.address ?? link.peer,
    create: () =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }),
        make("td", { class: "condition" }, makeShape("unknown"), make("span")),
        ...["", "", " wide", " wide", ""].map((more) => make("td", { class: `number${more}` })),
      ),
    update: (row, link) => {
      const [peer, state, ...numbers] = row.children;
      const isUp = link.state === "connected";
      setAttribute(row, "class", isUp ? "linked" : "silent");
      setText(peer, link.peer ?? link.address ?? UNKNOWN);
      const since = link.connected_at ? ` · since ${dateAndTime(new Date(1000 * link.connected_at))}` : "";
      setAttribute(peer, "title", `${link.address ?? "dialled by the other side"}${since}`);
      setAttribute(state.firstElementChild.firstElementChild, "href", isUp ? "#shape-linked" : "#shape-unknown");
      setText(state.lastElementChild, link.state);
      const values = [
        bytes(link.bytes_sent),
        bytes(link.bytes_received),
        bytes(link.pull_bytes_received),
        count(link.updates_dropped),
        duration(link.hop_seconds),
      ];
      numbers.forEach((cell, index) => setText(cell, values[index]));
    },
  });
}

/** Newest first, and only events of the chosen level or above. */
export function showEvents({ events }) {
  const least = LEVELS.indexOf(byId("events-level").value);
  const shown = events.filter((event) => LEVELS.indexOf(event.level) >= least).reverse();
  const seen = new Map();
  const keyed = shown.map((event) => {
    const name = JSON.stringify(event);
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return { event, name: `${name}${seen.get(name)}` };
  });
  byId("events-empty").hidden = shown.length > 0;
  reconcile(byId("events"), keyed, {
    key: ({ name }) => name,
    create: ({ event }) => makeEvent(event),
    update: () => {},
  });
}

function makeEvent(event) {
  const date = new Date(event.time);
  const facts = Object.entries(event).filter(([name, value]) => !NOT_FACTS.has(name) && !isEmpty(value));
  return make(
    "li",
    { class: event.level },
    make("time", { datetime: date.toISOString(), title: dateAndTime(date) }, timeOfDay(date)),
    make(
      "span",
      { class: "level", title: event.level },
      makeShape(LEVEL_SHAPES[event.level] ?? "note"),
      make("span", { class: "spoken" }, event.level),
    ),
    make(
      "span",
      { class: "what" },
      make("strong", {}, event.event),
      ...facts.map(([name, value]) =>
        make("span", { class: "fact" }, `${name.replaceAll("_", " ")} `, make("b", {}, plain(value))),
      ),
    ),
  );
}

function isEmpty(value) {
  return value === null || (Array.isArray(value) && value.length === 0);
}

function plain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  if (Array.isArray(value)) return value.map(plain).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
