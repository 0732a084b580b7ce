// The API: one function per way of asking. A failure is a Problem that a person can be told.

import {t} from "./words.js";

const ROOT = "/api/v1";
let session = null;
let whenLost = () => {};

export class Problem extends Error {
  constructor(status, detail, field = null, retryS = null) {
    super(detail);
    this.status = status;
    this.field = field;
    this.retryS = retryS;
  }

  /** In the reader's words where there are some; else the server's. */
  get told() {
    if (this.status === 0) return t("problem.network");
    if (this.status === 429 && this.retryS) return t("problem.often", {seconds: this.retryS});
    if (this.status === 401) return t("problem.login");
    if (this.status === 503) return t("problem.unavailable");
    if (this.status === 413) return t("problem.large");
    return this.field ? `${this.field}: ${this.message}` : this.message;
  }
}

export const who = () => session;
export const mayChange = (user) =>
  Boolean(session && (session.roles.includes("admin") || (session.roles.includes("submit") && session.user === user)));
export const has = (role) => Boolean(session && (session.roles.includes(role) || session.roles.includes("admin")));
export const setSession = (value) => { session = value; };
/** What to do when the server does not know us any longer. */
export const onLost = (act) => { whenLost = act; };

export async function ask(path, {method = "GET", body, headers = {}, signal, raw = false, quiet = false} = {}) {
  const sent = {...headers};
  if (method !== "GET" && session?.csrf) sent["X-CSRF-Token"] = session.csrf;
  if (body !== undefined && !(body instanceof FormData)) {
    sent["Content-Type"] = "application/json";
    body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(ROOT + path, {method, body, headers: sent, signal, credentials: "same-origin"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, String(error.message));
  }
  if (!answer.ok) {
    const problem = await readProblem(answer);
    if (answer.status === 401 && !quiet) whenLost();
    throw problem;
  }
  if (raw) return answer;
  return answer.status === 204 ? null : answer.json();
}

async function readProblem(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // A proxy's page, or nothing: the status has to do.
  }
  const retry = Number(answer.headers.get("Retry-After")) || null;
  return new Problem(answer.status, told.detail ?? answer.statusText, told.field ?? null, retry);
}

export const post = (path, body, more) => ask(path, {method: "POST", body, ...more});

export async function askSession() {
  try {
    session = await ask("/session", {quiet: true});
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    session = null;
  }
  return session;
}

export async function logIn(token) {
  session = await post("/session", {token}, {quiet: true});
  return session;
}

export async function logOut() {
  await ask("/session", {method: "DELETE", quiet: true});
  session = null;
}

export const taskPath = (id, ...rest) =>
  ["/tasks", id, ...rest].map((part, i) => (i ? encodeURIComponent(part) : part)).join("/");

/** Where a download lies; a name may have directories. */
export function address(id, ...rest) {
  const parts = rest.flatMap((part) => String(part).split("/"));
  return ROOT + taskPath(id, ...parts);
}

/** The beginning of something, as bytes, and how much there is in all. */
export async function peek(id, rest, mostBytes, signal) {
  const path = address(id, ...rest).slice(ROOT.length);
  const answer = await ask(path, {raw: true, signal, headers: {Range: `bytes=0-${mostBytes - 1}`}});
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const total = Number(answer.headers.get("Content-Range")?.split("/")[1] ?? bytes.length);
  return {bytes, total};
}
