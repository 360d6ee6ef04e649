// Talking to the service: the key, problems as errors, counting, the stream of camera counts.

const KEY = "uepnet-key";
const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key");
let asking = null;

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

/** Ask for the key, once for all who wait for it. */
export function askForKey() {
  asking ??= new Promise((resolve) => {
    field.value = "";
    dialog.addEventListener("close", () => {
      if (field.value) sessionStorage.setItem(KEY, field.value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  document.getElementById("change-key").hidden = false;
  return asking;
}

/** fetch, with the key; asks for it and tries again where it is missing or wrong. */
async function send(path, options = {}) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: headers(options.headers) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, "The service cannot be reached. Is it running?");
    }
    if (response.status === 401) {
      await askForKey();
      continue;
    }
    if (!response.ok) throw await problem(response);
    return response;
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

/** Count a file, with zones; the answer has the count map, decoded, as `cells` [rows x columns]. */
export async function count(file, zones, signal) {
  const form = new FormData();
  form.append("image", file);
  if (zones.length) form.append("zones", JSON.stringify({ zones }));
  const response = await send("/v1/count?include=map", { method: "POST", body: form, signal });
  const answer = await response.json();
  const bytes = Uint8Array.from(atob(answer.map.values), (character) => character.charCodeAt(0));
  answer.map.cells = new Float32Array(bytes.buffer);
  return answer;
}

/** Camera counts as they are made, for ever: EventSource cannot send a key, so the stream is read by hand. */
export async function listen(onCamera, onState) {
  let pause = 1000;
  for (;;) {
    try {
      const response = await send("/v1/events");
      onState("");
      pause = 1000;
      await readEvents(response.body.pipeThrough(new TextDecoderStream()), onCamera);
    } catch (error) {
      if (!(error instanceof Problem) && !(error instanceof TypeError)) throw error;
    }
    onState("(reconnecting)");
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, 30000);
  }
}

async function readEvents(stream, onCamera) {
  let rest = "";
  for await (const text of iterate(stream)) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").find((line) => line.startsWith("data: "));
      if (data) onCamera(JSON.parse(data.slice(6)));
    }
  }
}

async function* iterate(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
