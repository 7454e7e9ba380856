// The page's data: the node's last answer, how old it is, and whether the node still answers.

const POLL_MILLISECONDS = 1000;
const ANSWER_MILLISECONDS_MAX = 5000;

/** Older answers are called stale. One lost poll is not worth a banner. */
const STALE_MILLISECONDS = 3500;

/** Polls while the page is visible, and for ever: a node that was away is shown again as soon as it is back. */
export class Model {
  #show;
  #address;
  #answeredAt = null;
  #timer = null;
  #isAsking = false;
  #began = performance.now();

  /** status: the last answer, or null. fault: why there was none to the last question, or null. */
  status = null;
  fault = null;

  constructor(address, show) {
    this.#address = address;
    this.#show = show;
  }

  start() {
    document.addEventListener("visibilitychange", () => this.#wake());
    this.#wake();
  }

  get ageMilliseconds() {
    return performance.now() - (this.#answeredAt ?? this.#began);
  }

  get isStale() {
    return this.ageMilliseconds > STALE_MILLISECONDS;
  }

  #wake() {
    clearInterval(this.#timer);
    if (document.hidden) return;
    this.#timer = setInterval(() => this.#poll(), POLL_MILLISECONDS);
    this.#poll();
  }

  async #poll() {
    if (this.#isAsking) {
      this.#show(this); // its age is news, too
      return;
    }
    this.#isAsking = true;
    try {
      const signal = AbortSignal.timeout(ANSWER_MILLISECONDS_MAX);
      const response = await fetch(this.#address, {
        signal,
        cache: "no-store",
        headers: { accept: "application/json" },
      });
      if (!response.ok) throw new Error(`it answers ${response.status} ${response.statusText}`);
      this.status = await response.json();
      this.#answeredAt = performance.now();
      this.fault = null;
    } catch (error) {
      this.fault =
        error.name === "TimeoutError"
          ? "it does not answer"
          : error.name === "TypeError"
            ? "no connection"
            : error.message;
    } finally {
      this.#isAsking = false;
    }
    this.#show(this);
  }
}
