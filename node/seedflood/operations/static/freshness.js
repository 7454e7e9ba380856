// Whether the page is up to date: a pulsing dot, or a banner over stale figures.

import { byId, setAttribute, setText } from "./elements.js";
import { age, timeOfDay } from "./formats.js";

let staleSince = null;

export function showFreshness(model) {
  const { isStale, status } = model;
  if (!isStale) staleSince = null;
  else staleSince ??= new Date(Date.now() - model.ageMilliseconds);
  document.body.classList.toggle("is-stale", isStale);
  byId("banner").hidden = !isStale;
  setText(byId("freshness-text"), status === null ? "connecting" : isStale ? "stale" : "live, every second");
  if (isStale) showBanner(model);
}

function showBanner({ ageMilliseconds, fault, status }) {
  const isOver = status?.state === "finished" || status?.state === "draining";
  setAttribute(byId("banner"), "data-tone", isOver ? "calm" : "bad");
  setAttribute(byId("banner-shape"), "href", `#shape-${isOver ? "good" : "silent"}`);
  const old = age(ageMilliseconds / 1000);
  const detail = fault ? ` (${fault})` : "";
  if (status === null) {
    setText(byId("banner-title"), "This node does not answer.");
    setText(byId("banner-text"), `Trying for ${old}${detail}.`);
    return;
  }
  const ending =
    status.state === "finished"
      ? "The run is over and the node has ended."
      : "The node was stopped and said goodbye.";
  setText(byId("banner-title"), isOver ? ending : "This node cannot be reached.");
  const since = `Last answer ${timeOfDay(staleSince)}, ${old} ago`;
  setText(byId("banner-text"), isOver ? `${since}.` : `${since}; trying on${detail}.`);
  const name = `${status.node.name}: ${isOver ? "ended" : "not reached"} · seedflood`;
  if (document.title !== name) document.title = name;
}
