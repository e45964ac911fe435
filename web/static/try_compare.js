// Two images under one slider, and the choice of a part of an image.

import { create } from "./base.js";
import { _ } from "./texts.js";

const CROP = {
  hint: _("Drag on the image to choose the part to keep."),
  describe: ([, , width, height]) => _("Keeps {width}% of the width and {height}% of the height.", { width: Math.round(100 * width), height: Math.round(100 * height) }),
  reset: _("Keep the whole image"),
};
const shareOf = (frame, { clientX, clientY }) => {
  const box = frame.getBoundingClientRect(), within = (value) => Math.min(1, Math.max(0, value));
  return [within((clientX - box.left) / box.width), within((clientY - box.top) / box.height)];
};

// Calls `move` with the places of the pointer, from 0 to 1, while it is down: a mouse, a finger or a pen.
function follow(frame, begin, move) {
  frame.addEventListener("pointerdown", (event) => {
    if (event.button || !begin(shareOf(frame, event))) return;
    event.preventDefault();
    frame.setPointerCapture(event.pointerId);
    const onMove = (moved) => move(shareOf(frame, moved));
    frame.addEventListener("pointermove", onMove);
    for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => frame.removeEventListener("pointermove", onMove), { once: true });
  });
}

// Shows two images above each other: `after` at the right of the slider. With `zoom`, one pixel of `after` can be shown
// as one of the screen; then, dragging moves the part that is seen.
export function createComparison(before, after, { label, captions, zoom = true }) {
  const figure = create("figure", { className: "comparison" });
  const frame = create("div", { className: "pair" }), box = create("div", { className: "window" });
  const slider = create("input", { type: "range", min: 0, max: 100, value: 50 });
  slider.setAttribute("aria-label", label);
  const show = () => { frame.style.setProperty("--place", `${slider.value}%`); };
  slider.addEventListener("input", show);
  before.className = "before-picture";
  after.className = "after-picture";
  frame.append(before, after, create("span", { className: "divider" }));
  figure.style.setProperty("--ratio", after.naturalWidth / after.naturalHeight);
  figure.style.setProperty("--width", `${after.naturalWidth / devicePixelRatio}px`);
  box.append(frame);
  const set = ([place]) => {
    slider.value = Math.round(place * 100);
    show();
  };
  follow(frame, (place) => {
    if (figure.classList.contains("zoomed")) return false;
    set(place);
    slider.focus();
    return true;
  }, set);
  const texts = captions.map((text) => create("span", { textContent: text }));
  const row = create("figcaption", {});
  row.append(...texts);
  figure.append(box, slider, row);
  if (zoom) figure.append(createZoom(figure, box));
  show();
  return figure;
}

function createZoom(figure, box) {
  const button = create("button", { type: "button", className: "quiet small", textContent: _("Zoom to 100%") });
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const zoomed = figure.classList.toggle("zoomed");
    button.setAttribute("aria-pressed", String(zoomed));
    box.tabIndex = zoomed ? 0 : -1; // arrow keys move the part that is seen
    box.scrollTo((box.scrollWidth - box.clientWidth) / 2, (box.scrollHeight - box.clientHeight) / 2);
  });
  return button;
}

// Lets the visitor drag a rectangle on an image. `crop` is the one to begin with, and `chosen` gets the next ones: values
// of the option crop in percent, or "". `describe` gets the shares that are chosen.
export function createCropper(canvas, crop, chosen, { hint, describe, reset } = CROP) {
  const figure = create("figure", { className: "cropper" }), frame = create("div", { className: "pair" });
  const part = create("span", { className: "chosen", hidden: true });
  const note = create("span", {}), whole = create("button", { type: "button", className: "quiet small", textContent: reset });
  const caption = create("figcaption", {});
  const percent = (share) => `${+(share * 100).toFixed(2)}%`;
  let start = [0, 0];
  frame.style.setProperty("--ratio", canvas.width / canvas.height);
  frame.append(canvas, part);
  caption.append(note, whole);
  const show = (sides) => {
    part.hidden = whole.hidden = !sides;
    note.textContent = sides ? describe(sides) : hint;
    if (sides) [part.style.left, part.style.top, part.style.width, part.style.height] = sides.map(percent);
  };
  const draw = ([x, y]) => {
    const [left, top] = [Math.min(x, start[0]), Math.min(y, start[1])], [width, height] = [Math.abs(x - start[0]), Math.abs(y - start[1])];
    const sides = width < 0.01 || height < 0.01 ? null : [left, top, width, height];
    show(sides);
    chosen(sides ? sides.map(percent).join(",") : "");
  };
  whole.addEventListener("click", () => {
    show(null);
    chosen("");
  });
  follow(frame, (place) => {
    start = place;
    draw(place);
    return true;
  }, draw);
  const given = crop.split(",").map((side) => (side.endsWith("%") ? parseFloat(side) / 100 : NaN));
  show(given.length === 4 && given.every((side) => side >= 0) ? given : null);
  figure.append(frame, caption);
  return figure;
}
