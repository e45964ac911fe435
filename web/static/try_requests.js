// Requests of pages: with progress and cancellation, in a queue, and errors that say what to do.

import { base } from "./base.js";
import { _ } from "./texts.js";

const RETRIES = 3; // of a request that exceeds a rate limit
const RETRIED = [undefined, "queue_full"]; // reasons
const LONGEST_WAIT = 60; // seconds before a retry

// An error to show to the visitor. `link` is the place that helps: { href, text }. `retryAfter` is in seconds.
export class RequestError extends Error {
  constructor(error, link = null, retryAfter = null) {
    super(error.message);
    this.code = error.code;
    this.reason = error.reason;
    this.details = error.details ?? {};
    this.reference = error.request_id ? `${error.code}, ${error.request_id}` : "";
    this.link = link;
    this.retryAfter = retryAfter;
  }
}

const account = document.body.dataset.account ?? ""; // that is signed in

const LINKS = {
  no_credits: { href: `${base}/dashboard`, text: _("Your credits") },
  bytes: { href: `${base}/docs/limits`, text: _("Limits") },
  trials: { href: `${base}/register`, text: _("Create an account") },
  signed_in_changed: { href: "", text: _("Reload") },
};
const ADVICE = {
  pdf_encrypted: _("Enter the password and convert again."),
  corrupt_input: _("Open the file in its program, save it again, and try that copy."),
};

// The error of the API as a RequestError, with advice where its message has none.
export function describeError(error, retryAfter = null) {
  const name = error.reason ?? error.code;
  let advice = ADVICE[name];
  let link = LINKS[name] ?? { href: `${base}/docs/errors#${error.code}`, text: _("About this error") };
  if (name === "bytes" && !account) {
    advice = _("With an account, files may be larger.");
    link = LINKS.trials;
  } else if (error.retryable && name !== "trials") {
    advice = retryAfter ? _("Convert again in {seconds} s.", { seconds: retryAfter }) : _("Convert again.");
  }
  return new RequestError({ ...error, message: advice ? `${error.message} ${advice}` : error.message }, link, Number(retryAfter));
}

// Shows an error in its box.
export function showIn(box, { message, reference, link }) {
  const place = box.querySelector("a");
  box.querySelector(".text").textContent = message;
  box.querySelector(".reference").textContent = reference && `(${reference})`;
  place.hidden = !link;
  if (link) Object.assign(place, { href: link.href, textContent: link.text });
  box.hidden = false;
}

// Whether the server has responded to a request, and does not run it: the next attempt is another one, with another key.
export const isFinal = ({ reference, code }) => Boolean(reference) && code !== "idempotency_conflict";

async function errorOf(xhr) {
  let body = {};
  try {
    body = JSON.parse(await xhr.response.text());
  } catch { // a proxy's page
  }
  const error = body.error ?? { code: "server_error", message: _("The server responded with status {status}.", { status: xhr.status }), retryable: true };
  return describeError(error, xhr.getResponseHeader("Retry-After"));
}

// Sends a form for the account that is signed in, or GETs without one. Resolves to the XMLHttpRequest, whose response is
// a Blob; rejects with RequestError, or with AbortError after a cancellation. `onUpload` gets the share of the form that
// has been sent. Requests with the same `key` are charged once.
function sendOnce(path, { form, key, accept, signal, onUpload } = {}) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const xhr = new XMLHttpRequest();
    const abort = () => xhr.abort();
    xhr.open(form ? "POST" : "GET", path);
    xhr.responseType = "blob";
    if (form) xhr.setRequestHeader("X-Page-Account", account);
    if (key) xhr.setRequestHeader("Idempotency-Key", key);
    if (accept) xhr.setRequestHeader("Accept", accept);
    if (onUpload) xhr.upload.addEventListener("progress", ({ loaded, total }) => onUpload(loaded / total));
    xhr.addEventListener("load", () => (xhr.status < 300 ? resolve(xhr) : errorOf(xhr).then(reject)));
    xhr.addEventListener("error", () => reject(new RequestError({ message: _("The server cannot be reached. Check your connection and convert again.") })));
    xhr.addEventListener("abort", () => reject(new DOMException("cancelled", "AbortError")));
    xhr.addEventListener("loadend", () => signal?.removeEventListener("abort", abort));
    signal?.addEventListener("abort", abort);
    xhr.send(form);
  });
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// Like `sendOnce`, and repeats requests that exceed a rate limit of a minute. `onWait` gets the seconds until then, each
// second.
export async function send(path, options = {}) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await sendOnce(path, options);
    } catch (error) {
      const waits = error.code === "rate_limit_exceeded" && RETRIED.includes(error.reason) && error.retryAfter <= LONGEST_WAIT;
      if (!waits || attempt === RETRIES) throw error;
      for (let seconds = error.retryAfter; seconds > 0; seconds -= 1) {
        options.onWait?.(seconds);
        await pause(1, options.signal);
      }
    }
  }
}

export async function sendForJson(path, options) {
  const xhr = await send(path, { ...options, accept: "application/json" });
  return JSON.parse(await xhr.response.text());
}

// Converts, or runs a tool. Resolves to the result, a Blob, and its description by the server. That of an account goes on
// when the page is left, so that a cancellation is said first.
export async function run(path, { signal, ...options }) {
  const sending = new AbortController(), cancellation = { method: "POST", headers: { "Idempotency-Key": options.key } };
  signal.addEventListener("abort", async () => {
    if (account) await fetch(`${base}/try/cancel`, cancellation).catch(() => {});
    sending.abort();
  });
  sessionStorage.setItem("begun", path); // the next page looks for the result, if there is none before
  const xhr = await send(path, { ...options, signal: sending.signal });
  const balance = xhr.getResponseHeader("X-Credits-Remaining");
  return { blob: xhr.response, data: JSON.parse(xhr.getResponseHeader("X-Result")), balance: balance && Number(balance) };
}

export function createForm(fields) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) for (const one of [value].flat()) form.append(name, one);
  return form;
}

// Runs `parallel` tasks at a time, in order. A task is a function that returns a promise. Tasks whose signal is aborted
// are not started.
export class Queue {
  constructor(parallel) {
    this.free = parallel;
    this.waiting = [];
  }

  add(task, signal) {
    return new Promise((resolve, reject) => {
      signal.throwIfAborted();
      const start = () => task().then(resolve, reject);
      this.waiting.push(start);
      signal.addEventListener("abort", () => {
        this.waiting = this.waiting.filter((one) => one !== start);
        reject(signal.reason);
      });
      this.startNext();
    });
  }

  startNext() {
    if (!this.free || !this.waiting.length) return;
    this.free -= 1;
    this.waiting.shift()().finally(() => {
      this.free += 1;
      this.startNext();
    });
  }
}
