// Talking to the service: the key, problems as errors, counting, the stream of events.

const KEY = "uepnet-key";
const PATIENCE = 12_000; // milliseconds without an answer after which the server counts as lost
const SILENCE = 40_000; // the stream of events is never quiet for so long: a comment comes every 15 seconds
const LOST = "The server does not answer. What is shown may be old; trying again.";
const STOPPED = "The live counts have stopped. What is shown may be old; trying again.";
const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
let asking = null;
let declined = false; // nobody wants to be asked again and again
let clockOffset = 0;
let tellTrouble = () => {};
const trouble = { server: "", stream: "" };

/** What the service refused, with its own sentence for people. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, "X-API-Key": key } : more;
}

/** Milliseconds since 1970 by the server's clock: ages must not depend on the clock of a phone. */
export function serverNow() { return Date.now() + clockOffset; }

/** `told` gets a sentence while the server or its stream of counts is lost, and "" when both are there. */
export function onTrouble(told) { tellTrouble = told; }

function note(what, text) {
  trouble[what] = text;
  tellTrouble(trouble.server || trouble.stream);
}

function noteClock(response) {
  const offset = Date.parse(response.headers.get("Date")) - Date.now();
  clockOffset = Math.abs(offset) > 3000 ? offset : 0; // the header has whole seconds
}

/** Ask for the key, once for all who wait for it; whether one was given. `why` says what was wrong with the last. */
export function askForKey(why = "", title = "This service needs a key") {
  asking ??= new Promise((resolve) => {
    field.value = "";
    document.getElementById("key-title").textContent = title;
    const complaint = document.getElementById("key-error");
    complaint.textContent = why;
    complaint.hidden = !why;
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue !== "cancelled" && field.value;
      if (given) sessionStorage.setItem(KEY, field.value);
      declined = !given;
      asking = null;
      resolve(Boolean(given));
    }, { once: true });
    dialog.returnValue = "";
    dialog.showModal();
  });
  document.getElementById("change-key").hidden = false;
  return asking;
}

dialog.addEventListener("cancel", () => { dialog.returnValue = "cancelled"; field.value = ""; });
document.getElementById("key-cancel").addEventListener("click", () => dialog.close("cancelled"));
document.getElementById("change-key").addEventListener("click", () => askForKey());
document.getElementById("change-key").hidden = !sessionStorage.getItem(KEY);

/** fetch, with the key; asks for it and tries again where it is missing or wrong. */
async function send(path, { admin = false, patience = PATIENCE, signal, ...options } = {}) {
  for (;;) {
    const response = await reach(path, options, patience, signal);
    const sent = sessionStorage.getItem(KEY);
    if (response.status === 401) {
      if (!declined && await askForKey(sent ? "That key was not accepted." : "")) continue;
      throw new Problem(401, "This service needs a key: press Key at the top.");
    }
    if (response.status === 403 && admin) {
      if (await askForKey(sent ? "The key in use is not the admin key." : "", "This needs the admin key")) continue;
      throw new Problem(403, "Nothing was saved: that needs the admin key.");
    }
    if (!response.ok) throw await problem(response);
    return response;
  }
}

/** One request. A server that takes the connection and says nothing is lost, too: hence the patience. */
async function reach(path, options, patience, signal) {
  const waiting = new AbortController();
  const timer = patience ? setTimeout(() => waiting.abort(), patience) : 0;
  const signals = signal ? AbortSignal.any([signal, waiting.signal]) : waiting.signal;
  try {
    const response = await fetch(path, { ...options, headers: headers(options.headers), signal: signals });
    noteClock(response);
    note("server", "");
    return response;
  } catch (error) {
    if (signal?.aborted) throw error;
    note("server", LOST);
    throw new Problem(0, "The service cannot be reached. Is it running?");
  } finally {
    clearTimeout(timer);
  }
}

async function problem(response) {
  try {
    return new Problem(response.status, (await response.json()).detail);
  } catch {
    return new Problem(response.status, `The service answered ${response.status}.`);
  }
}

export async function get(path) {
  return (await send(path)).json();
}

export async function put(path, content) {
  const headers = { "Content-Type": "application/json" };
  return (await send(path, { method: "PUT", headers, body: JSON.stringify(content), admin: true })).json();
}

/** Forget what was changed; what is there instead. */
export async function remove(path) {
  await send(path, { method: "DELETE", admin: true });
  return get(path);
}

export async function post(path) {
  return (await send(path, { method: "POST" })).json();
}

/** What is not JSON: pictures, tables. */
export async function getBlob(path, accept = "*/*") {
  return (await send(path, { headers: { Accept: accept }, patience: 60_000 })).blob();
}

/** Count a file, with zones; the answer has the count map, decoded, as `cells` [rows x columns]. */
export async function count(file, zones, signal) {
  const form = new FormData();
  form.append("image", file);
  if (zones.length) form.append("zones", JSON.stringify({ zones }));
  const response = await send("/v1/count?include=map", { method: "POST", body: form, signal, patience: 0 });
  const answer = await response.json();
  const bytes = Uint8Array.from(atob(answer.map.values), (character) => character.charCodeAt(0));
  answer.map.cells = new Float32Array(bytes.buffer);
  return answer;
}

/**
 * Events as they come, for ever: EventSource cannot send a key, so the stream is read by hand.
 * `handlers` has a function for each kind of event.
 */
export async function listen(handlers) {
  let pause = 1000;
  for (;;) {
    const quiet = new AbortController();
    try {
      const response = await send("/v1/events", { signal: quiet.signal });
      pause = 1000;
      await readEvents(response.body, handlers, quiet);
      note("stream", STOPPED);
    } catch (error) {
      const expected = error instanceof Problem || error instanceof TypeError || quiet.signal.aborted;
      if (!expected) throw error;
      note("stream", error.status ? `No live counts: ${error.message}` : STOPPED);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 15000);
  }
}

/** Until the stream ends or stays quiet for too long, as one does whose network is gone. */
async function readEvents(body, handlers, quiet) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const timer = setTimeout(() => quiet.abort(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    note("stream", "");
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (data && handlers[kind]) handlers[kind](JSON.parse(data));
    }
  }
}
