// Draw values: text, numbers, sparklines, images with boxes, sound.

import { mediaAddress } from "./ask.js";
import { counted, draw, make } from "./make.js";

// Fewer numbers are easier to read than a line.
const FEWEST_POINTS = 5;

export const WIDTHS = {
  number: 112, text: 280, bytes: 230, image: 150, audio: 250, numbers: 190, list: 240, strip: 380,
};

export function drawCell(cell, place) {
  if (!cell) return make("span", { class: "absent" }, "not in this dataset");
  switch (cell.kind) {
    case "number": return number(cell);
    case "text": return make("span", { class: "text" }, shortened(cell));
    case "bytes": return bytes(cell);
    case "image": return place ? picture(cell, place) : make("span", {}, sized(cell));
    case "audio": return place ? sound(cell, place) : make("span", {}, sized(cell));
    case "numbers": return numbers(cell);
    default: return list(cell, place);
  }
}

// What a screen reader says, and what a cell is called when it is copied.
export function describe(cell) {
  if (!cell) return "not in this dataset";
  switch (cell.kind) {
    case "number": return cell.label ? `${cell.text}, ${cell.label}` : cell.text;
    case "text": return cell.text || "empty text";
    case "list": return isStrip(cell) && cell.items.every((item) => item.kind === "image")
      ? counted(cell.size, "image") : `list of ${cell.size}`;
    case "numbers": return `${shape(cell)} ${cell.text}`;
    default: return sized(cell);
  }
}

export const shape = (cell) => `[${cell.shape.join(", ")}]`;

export function sized(cell) {
  if (cell.shape) return `${cell.kind === "image" ? "image" : cell.type ?? ""} ${shape(cell)}`.trim();
  return `${cell.type ?? ""} ${cell.size.toLocaleString("en")} bytes`.trim();
}

function shortened(cell) {
  return cell.text.length < cell.size && cell.text.length >= 240 ? `${cell.text}…` : cell.text;
}

function number(cell) {
  const span = make("span", { class: cell.text === "nan" ? "number odd" : "number" }, cell.text);
  if (cell.label) span.append(" ", make("em", {}, cell.label));
  return span;
}

function bytes(cell) {
  const size = make("small", {}, `${cell.size.toLocaleString("en")} bytes`);
  return make("span", { class: "bytes" }, make("code", {}, cell.text), size);
}

// Whether a list is drawn as a strip of images.
export const isStrip = (cell) => cell.kind === "list" && cell.items.some((item) => item.kind === "image");

export function drawItems(cell, place) {
  return cell.items.map((item, i) => make("li", {},
    drawCell(item, place && { ...place, boxes: null, item: [...place.item ?? [], i] })));
}

function list(cell, place) {
  const items = drawItems(cell, place);
  if (cell.size > items.length) items.push(make("li", {}, make("small", {}, `of ${cell.size.toLocaleString("en")}`)));
  return make("ul", { class: isStrip(cell) ? "list strip" : "list" }, ...items);
}

function numbers(cell) {
  const caption = make("small", {}, `${shape(cell)} ${cell.text}`);
  const drawn = cell.points?.length >= FEWEST_POINTS;
  return make("span", { class: "numbers" }, drawn ? sparkline(cell.points) : null, caption);
}

export function sparkline(points, label = "") {
  const known = points.filter((point) => point !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const half = high / 2 - low / 2 || 1;
  const place = (point) => (1 - (point / 2 - low / 2) / half).toFixed(4);
  const lines = [];
  let run = [];
  points.forEach((point, i) => {
    if (point !== null) run.push(`${i},${place(point)}`);
    if ((point === null || i === points.length - 1) && run.length) {
      lines.push(draw("polyline", { points: run.length > 1 ? run.join(" ") : `${run[0]} ${run[0]}` }));
      run = [];
    }
  });
  return draw("svg", {
    class: "sparkline", viewBox: `0 -0.1 ${Math.max(points.length - 1, 1)} 1.2`,
    preserveAspectRatio: "none", role: "img", "aria-label": label || "line of the values",
  }, ...lines);
}

export function bars(counts, label) {
  const most = Math.max(...counts);
  const rects = counts.map((n, i) => n === 0 ? null : draw("rect", {
    x: i + 0.05, y: 1 - Math.max(n / most, 0.04), width: 0.9, height: Math.max(n / most, 0.04),
  }));
  return draw("svg", {
    class: "bars", viewBox: `0 0 ${counts.length} 1`, preserveAspectRatio: "none",
    role: "img", "aria-label": label,
  }, ...rects);
}

export function picture(cell, place) {
  const { row, column, side, item, boxes, more } = place;
  const frame = make("span", { class: "picture" });
  const image = make("img", { alt: `${sized(cell)}, row ${row}`, decoding: "async", loading: "lazy", draggable: "false" });
  image.addEventListener("error", () => {
    frame.replaceChildren(make("span", { class: "odd" }, `${cell.type} that cannot be decoded`));
  });
  image.addEventListener("load", () => {
    if (image.naturalWidth < 80) image.classList.add("pixels");
    for (const each of boxes ?? []) frame.append(boxesOn(image, each));
  });
  image.src = mediaAddress(row, column, { side, item: item?.join(), ...more });
  frame.append(image);
  return frame;
}

function boxesOn(image, { boxes, fractions }) {
  const w = image.naturalWidth || 1, h = image.naturalHeight || 1;
  const rects = boxes.map(([left, top, right, bottom]) => draw("rect", {
    x: Math.min(left, right) * (fractions ? w : 1), y: Math.min(top, bottom) * (fractions ? h : 1),
    width: Math.abs(right - left) * (fractions ? w : 1), height: Math.abs(bottom - top) * (fractions ? h : 1),
  }));
  return draw("svg", {
    class: "boxes", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${boxes.length} boxes`,
  }, ...rects);
}

export function sound(cell, { row, column, side, item, more }) {
  const player = make("audio", {
    controls: true, preload: "none", src: mediaAddress(row, column, { side, item: item?.join(), ...more }),
    "aria-label": `sound, row ${row}`,
  });
  return make("span", { class: "sound" }, cell.points ? sparkline(cell.points) : null, player);
}
