// Pictures of files: shown by the browser if it can, else a preview that the server makes.

import { Queue, createForm, send } from "./try_requests.js";

const previews = new Queue(1);

function showText(frame, text) {
  frame.replaceChildren(Object.assign(document.createElement("p"), { textContent: text }));
}

// Resolves to an image of the blob, or rejects if the browser cannot show it.
function loadImage(blob, alt) {
  const url = URL.createObjectURL(blob);
  return new Promise((resolve, reject) => {
    const image = Object.assign(new Image(), { alt, onload: () => resolve(image), onerror: reject });
    image.src = url;
  }).finally(() => URL.revokeObjectURL(url));
}

// Shows a picture of the blob in the frame, unless the frame has been given another one in the meantime. `limit` is the
// largest file, in bytes, of which the server makes a preview.
export async function showPicture(frame, blob, { alt, limit, key, password, signal }) {
  const isCurrent = () => frame.shown === blob && !signal.aborted;
  frame.shown = blob;
  try {
    const image = await loadImage(blob, alt);
    if (isCurrent()) frame.replaceChildren(image);
    return;
  } catch {
    if (isCurrent()) showText(frame, blob.size > limit ? "No preview" : "Loading a preview…");
  }
  if (blob.size > limit) return;
  try {
    const form = createForm({ file: blob, ...(password && { password }) });
    const preview = await previews.add(() => send("/try/preview", { form, key, signal }), signal);
    const image = await loadImage(preview.response, `Preview of ${alt}`);
    if (isCurrent()) frame.replaceChildren(image);
  } catch {
    if (isCurrent()) showText(frame, "No preview");
  }
}

export function showNoPicture(frame, text) {
  frame.shown = null;
  showText(frame, text);
}
