// Server-sent events with a state to show: the browser reconnects by itself while it can, and this
// module when it gave up (a gateway that was restarted answers some requests with an error).

import {ask, setSession} from "./api.js";

const REST_MS = 5000;
const AGAIN_MS = [1000, 2000, 5000, 10_000];

/** Calls `on.task(value)`, `on.gap()`, `on.end()`, `on.state(connected)`; returns how to stop. */
export function follow(path, on) {
  let source = null;
  let timer = null;
  let failures = 0;
  let stopped = false;
  let lastId = "";

  function open() {
    if (stopped || document.hidden) return;
    const query = lastId ? `?last_event_id=${encodeURIComponent(lastId)}` : "";
    source = new EventSource(`/api/v1${path}${query}`);
    source.addEventListener("open", () => {
      failures = 0;
      on.state?.(true);
    });
    source.addEventListener("task", (event) => {
      lastId = event.lastEventId || lastId;
      on.task?.(JSON.parse(event.data));
    });
    source.addEventListener("gap", () => on.gap?.());
    source.addEventListener("end", () => {
      stop();
      on.end?.();
    });
    source.addEventListener("error", () => {
      if (stopped) return;
      on.state?.(false);
      if (source.readyState === EventSource.CLOSED) later();
    });
  }

  function later() {
    source.close();
    clearTimeout(timer);
    timer = setTimeout(async () => {
      try {
        const now = await ask("/session");
        if (stopped) return; // it may be older than a log-out
        setSession(now);
      } catch (problem) {
        if (!("told" in problem)) throw problem;
        if (problem.status === 401) return; // not logged in any longer: the page shows that
      }
      open();
    }, AGAIN_MS[Math.min(failures, AGAIN_MS.length - 1)]);
    failures += 1;
  }

  function stop() {
    stopped = true;
    clearTimeout(timer);
    source?.close();
    document.removeEventListener("visibilitychange", rest);
  }

  // A browser has six connections to one server: tabs that nobody sees must not hold them.
  function rest() {
    clearTimeout(timer);
    if (!document.hidden) {
      if (!source || source.readyState === EventSource.CLOSED) open();
    } else {
      timer = setTimeout(() => {
        source?.close();
        on.state?.(false);
      }, REST_MS);
    }
  }

  document.addEventListener("visibilitychange", rest);
  open();
  return stop;
}

/** At most one call in `pauseMs`, the last one never lost. */
export function throttle(act, pauseMs) {
  let timer = null;
  let last = 0;
  const run = () => {
    timer = null;
    last = performance.now();
    if (document.hidden) document.addEventListener("visibilitychange", call, {once: true});
    else act();
  };
  const call = () => {
    if (timer === null) timer = setTimeout(run, Math.max(0, last + pauseMs - performance.now()));
  };
  call.stop = () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", call);
  };
  return call;
}

/** Calls `act` every `pauseMs` while somebody looks; returns how to stop. */
export function repeat(act, pauseMs) {
  const look = () => {
    if (document.visibilityState === "visible") act();
  };
  const timer = setInterval(look, pauseMs);
  document.addEventListener("visibilitychange", look);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", look);
  };
}
