// The page's data: the node's last answer, how old it is, and whether the node still answers.

const POLL_MILLISECONDS = 1000;
const ANSWER_MILLISECONDS_MAX = 5000;

/** Older answers are called stale. One lost poll is not worth a banner. */
const STALE_MILLISECONDS = 3500;

/**
 * Asks while the page is visible, and for ever: a node that was away is shown again as soon as it is back.
 * show: gets { status, fault, seconds, isStale }: the last answer, or null; why there was none to the last question, or
 * null; how old the answer is.
 */
export function watch(address, show) {
  const model = { status: null, fault: null };
  let answeredAt = performance.now();
  let isAsking = false;

  async function ask() {
    try {
      const response = await fetch(address, { signal: AbortSignal.timeout(ANSWER_MILLISECONDS_MAX), cache: "no-store" });
      if (!response.ok) throw new Error(`it answers ${response.status} ${response.statusText}`);
      model.status = await response.json();
      model.fault = null;
      answeredAt = performance.now();
    } catch (error) {
      model.fault = error.name === "TypeError" ? "no connection" : error.message;
    }
  }

  async function poll() {
    if (!isAsking && !document.hidden) {
      isAsking = true;
      await ask();
      isAsking = false;
    }
    const age = performance.now() - answeredAt; // it grows while a question is open, too
    show({ ...model, seconds: age / 1000, isStale: age > STALE_MILLISECONDS });
  }

  setInterval(poll, POLL_MILLISECONDS);
  document.addEventListener("visibilitychange", poll);
  poll();
}
