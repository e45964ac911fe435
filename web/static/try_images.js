// Images of files: shown by the browser if it can, else a preview that the server makes.

import { base } from "./base.js";
import { _ } from "./texts.js";
import { readZip } from "./zip.js";
import { Queue, createForm, send } from "./try_requests.js";

const previews = new Queue(1);

// Resolves to what the server shows of a file, free of charge; their number is limited.
async function preview(fields, signal = new AbortController().signal) {
  const form = createForm(fields);
  const { response } = await previews.add(() => send(`${base}/try/preview`, { form, signal }), signal);
  return response;
}

// Resolves to an image of the blob, or rejects if the browser cannot show it.
function loadImage(blob, alt) {
  const url = URL.createObjectURL(blob);
  return new Promise((resolve, reject) => {
    const image = Object.assign(new Image(), { alt, onload: () => resolve(image), onerror: reject });
    image.src = url;
  }).finally(() => URL.revokeObjectURL(url));
}

// Resolves to an image of the file, which can be a small preview that the server makes, or rejects if there is none.
// `limit` is the largest file, in bytes, of which the server makes one.
export async function loadPreview(blob, { alt, limit, password, signal }) {
  try {
    return await loadImage(blob, alt);
  } catch (error) {
    if (blob.size > limit) throw error;
  }
  const shown = await preview({ file: blob, ...(password && { password }) }, signal);
  return Object.assign(await loadImage(shown, _("Preview of {name}", { name: alt })), { isPreview: true });
}

// Resolves to an image of a page of a file, which the server makes.
export async function loadPage(file, number, password) {
  const [image] = await loadPages(file, number, number, password);
  return image;
}

// Resolves to the images of some pages, small ones if there are several.
export async function loadPages(file, first, last, password) {
  const shown = await preview({ file, pages: first === last ? String(first) : `${first}-${last}`, ...(password && { password }) });
  const blobs = first === last ? [shown] : await readZip(shown);
  return Promise.all(blobs.map((blob) => loadImage(blob, "")));
}

export function showText(frame, text) {
  frame.shown = null;
  frame.replaceChildren(Object.assign(document.createElement("p"), { textContent: text }));
}

// Shows an image of the blob in the frame, unless the frame has been given another one in the meantime.
export async function showImage(frame, blob, options) {
  const isCurrent = () => frame.shown === blob && !options.signal.aborted;
  showText(frame, "…");
  frame.shown = blob;
  try {
    const image = await loadPreview(blob, options);
    if (isCurrent()) frame.replaceChildren(image);
    return image;
  } catch {
    if (isCurrent()) showText(frame, _("No preview"));
    return null;
  }
}

// A copy of the middle of an image, at most so many pixels wide and high.
export function copyMiddle(image, size = Infinity) {
  const { naturalWidth, naturalHeight } = image;
  const width = Math.min(size, naturalWidth), height = Math.min(size, naturalHeight);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").drawImage(image, (naturalWidth - width) >> 1, (naturalHeight - height) >> 1, width, height, 0, 0, width, height);
  return canvas;
}

// What an encoding of a small image looks like: resolves to { image, size }.
export async function encodeSample(canvas, options, signal) {
  const sample = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  const shown = await preview({ ...options, file: new File([sample], "sample.png", { type: "image/png" }) }, signal);
  return { image: await loadPreview(shown, { alt: "", limit: Infinity, signal }), size: shown.size };
}
