// A grid of any number of rows. Only those in sight exist.
//
// Browsers limit the height of an element, so above MOST_PIXELS the scroll bar stands for the whole
// and the wheel moves by rows. `top` is the place of the first row in sight, with a fraction.

import { WIDTHS, describe, drawCell, isStrip } from "./cells.js";
import { counted, make } from "./make.js";

const MOST_PIXELS = 8_000_000;
const PAGE = 32;
const KEPT_PAGES = 60;
const HEADER = 44;

export class Grid {
  constructor(element, { load, onOpen, onError }) {
    this.element = element;
    this.load = load;
    this.onOpen = onOpen;
    this.onError = onError;
    this.total = 0;
    this.top = 0;
    this.rowHeight = 36;
    this.columns = [];
    this.focus = { position: 0, column: 0 };
    this.pages = new Map();
    this.version = 0;
    this.drawn = new Map();
    this.spacer = make("div", { class: "spacer", role: "presentation" });
    this.header = make("div", { class: "row head", role: "row", "aria-rowindex": "1" });
    this.layer = make("div", { class: "layer", role: "rowgroup" });
    this.spacer.append(this.header, this.layer);
    element.replaceChildren(this.spacer);
    element.addEventListener("scroll", () => this.scrolled());
    element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    element.addEventListener("keydown", (event) => this.key(event));
    element.addEventListener("mousedown", (event) => this.clicked(event));
    new ResizeObserver(() => this.draw()).observe(element);
  }

  show({ total, columns, rowHeight, keepPlace = false }) {
    this.version += 1;
    this.pages.clear();
    this.total = total;
    this.columns = columns;
    this.rowHeight = rowHeight;
    if (!keepPlace) {
      this.focus.position = 0;
      this.top = 0;
    }
    this.focus.column = Math.min(this.focus.column, Math.max(columns.length - 1, 0));
    this.resize();
    this.drawHeader();
    this.redraw();
    this.setTop(Math.min(this.top, this.last()));
  }

  setTotal(total) {
    if (total === this.total) return;
    this.total = total;
    this.resize();
    this.setTop(Math.min(this.top, this.last()));
  }

  resize() {
    const full = this.total * this.rowHeight;
    this.scaled = full > MOST_PIXELS;
    this.spacer.style.height = `${HEADER + Math.min(full, MOST_PIXELS)}px`;
    const width = this.columns.reduce((sum, column) => sum + column.width, 0);
    const digits = this.total.toLocaleString("en").length;
    this.element.style.setProperty("--number-width", `${Math.max(56, digits * 7.5 + 28)}px`);
    this.spacer.style.width = `calc(${width}px + var(--number-width))`;
    this.element.setAttribute("aria-rowcount", this.total + 1);
    this.element.setAttribute("aria-colcount", this.columns.length + 1);
  }

  inSight() { return Math.max(1, (this.element.clientHeight - HEADER) / this.rowHeight); }
  last() { return Math.max(0, this.total - this.inSight()); }
  scrollRange() { return Math.max(1, this.element.scrollHeight - this.element.clientHeight); }

  setTop(top) {
    this.top = Math.max(0, Math.min(top, this.last()));
    const place = this.scaled
      ? (this.last() ? (this.top / this.last()) * this.scrollRange() : 0)
      : this.top * this.rowHeight;
    this.expected = place;
    this.element.scrollTop = place;
    this.draw();
  }

  scrolled() {
    const place = this.element.scrollTop;
    if (this.scaled && Math.abs(place - this.expected) < 2) {
      this.draw(); // moved by ourselves, or sideways
      return;
    }
    this.expected = place;
    this.top = this.scaled ? (place / this.scrollRange()) * this.last() : place / this.rowHeight;
    this.draw();
  }

  wheel(event) {
    if (!this.scaled || event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    const pixels = event.deltaMode === 0 ? event.deltaY : event.deltaY * this.rowHeight;
    this.setTop(this.top + pixels / this.rowHeight);
  }

  goTo(position, column = this.focus.column) {
    position = Math.max(0, Math.min(position, this.total - 1));
    this.focus = { position, column: Math.max(0, Math.min(column, this.columns.length - 1)) };
    const room = Math.floor(this.inSight());
    if (position < this.top) this.setTop(position);
    else if (position > this.top + room - 1) this.setTop(position - Math.max(room - 1, 0));
    this.showColumn();
    this.draw();
    this.mark();
  }

  showColumn() {
    const left = this.columns.slice(0, this.focus.column).reduce((sum, c) => sum + c.width, 0);
    const width = this.columns[this.focus.column]?.width ?? 0;
    const number = this.header.firstChild?.offsetWidth ?? 0;
    const room = this.element.clientWidth - number;
    if (left < this.element.scrollLeft) this.element.scrollLeft = left;
    else if (left + width > this.element.scrollLeft + room) this.element.scrollLeft = left + width - room;
  }

  key(event) {
    const { position, column } = this.focus;
    const page = Math.max(1, Math.floor(this.inSight()) - 1);
    const far = event.ctrlKey || event.metaKey;
    const moves = {
      ArrowDown: [position + 1, column], ArrowUp: [position - 1, column],
      ArrowRight: [position, column + 1], ArrowLeft: [position, column - 1],
      PageDown: [position + page, column], PageUp: [position - page, column],
      Home: far ? [0, column] : [position, 0],
      End: far ? [this.total - 1, column] : [position, this.columns.length - 1],
    };
    if (event.target !== this.element) return;
    if (moves[event.key]) {
      event.preventDefault();
      this.goTo(...moves[event.key]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open();
    }
  }

  clicked(event) {
    const cell = event.target.closest("[data-column]");
    const row = event.target.closest("[data-position]");
    if (!row || event.button !== 0 || event.target.closest("audio")) return;
    this.goTo(Number(row.dataset.position), cell ? Number(cell.dataset.column) : this.focus.column);
    this.open();
  }

  open() {
    const row = this.rowAt(this.focus.position);
    if (row) this.onOpen(row, this.columns[this.focus.column]);
  }

  mark() {
    this.element.querySelector(".focus")?.classList.remove("focus");
    const row = this.drawn.get(this.focus.position);
    const cell = row?.children[this.focus.column + 1] ?? row?.children[1];
    if (cell) {
      cell.classList.add("focus");
      this.element.setAttribute("aria-activedescendant", cell.id);
    } else this.element.removeAttribute("aria-activedescendant");
  }

  rowAt(position) {
    const page = this.pages.get(Math.floor(position / PAGE));
    return page?.rows?.[position % PAGE];
  }

  want(number) {
    const page = this.pages.get(number);
    if (page && (page.loading || page.complete)) return;
    const start = number * PAGE + (page?.rows.length ?? 0);
    const stop = Math.min((number + 1) * PAGE, this.total);
    const version = this.version;
    const now = page ?? { rows: [] };
    now.loading = true;
    this.pages.set(number, now);
    this.load(start, stop).then((rows) => {
      if (version !== this.version) return;
      now.loading = false;
      now.rows.push(...rows);
      now.complete = rows.length === 0 || now.rows.length >= stop - number * PAGE;
      this.forget();
      this.redraw(number);
    }).catch((error) => {
      if (version !== this.version) return;
      now.loading = false;
      now.complete = true;
      this.onError(error);
    });
  }

  forget() {
    const here = Math.floor(this.top / PAGE);
    if (this.pages.size <= KEPT_PAGES) return;
    const far = [...this.pages.keys()].sort((a, b) => Math.abs(b - here) - Math.abs(a - here));
    for (const number of far.slice(0, this.pages.size - KEPT_PAGES)) this.pages.delete(number);
  }

  // Draw rows again, of one page or of all.
  redraw(page = null) {
    for (const [position, row] of this.drawn) {
      if (page === null || Math.floor(position / PAGE) === page) {
        row.remove();
        this.drawn.delete(position);
      }
    }
    this.draw();
  }

  draw() {
    const first = Math.floor(this.top);
    const end = Math.min(this.total, Math.ceil(this.top + this.inSight()) + 1);
    for (const [position, row] of this.drawn) {
      if (position < first || position >= end) {
        row.remove();
        this.drawn.delete(position);
      }
    }
    for (let position = first; position < end; position += 1) {
      let row = this.drawn.get(position);
      if (!row) {
        row = this.drawRow(position);
        this.drawn.set(position, row);
        this.layer.append(row);
      }
      row.style.transform = `translateY(${(position - this.top) * this.rowHeight}px)`;
    }
    clearTimeout(this.wanting);
    this.wanting = setTimeout(() => {
      if (!this.total) return;
      for (let page = Math.floor(first / PAGE); page * PAGE < end; page += 1) this.want(page);
    }, this.drawn.size ? 30 : 0);
    this.mark();
  }

  drawHeader() {
    const cells = this.columns.map((column, i) => {
      const cell = make("div", {
        role: "columnheader", class: "cell", title: `${column.name}: ${column.type ?? column.other}. Click to sort.`,
        "aria-colindex": i + 2, "aria-sort": column.sorted, onclick: () => this.onSort?.(column),
      }, make("b", {}, column.name + (column.sorted ? (column.sorted === "ascending" ? " ↑" : " ↓") : "")), make("small", {}, column.type ?? column.other ?? ""));
      cell.style.width = `${column.width}px`;
      return cell;
    });
    this.header.replaceChildren(make("div", { role: "columnheader", class: "cell number", "aria-colindex": "1" }, "row"), ...cells);
  }

  drawRow(position) {
    const data = this.rowAt(position);
    const row = make("div", {
      class: "row", role: "row", "aria-rowindex": position + 2, "data-position": position,
    });
    row.style.height = `${this.rowHeight}px`;
    const title = data ? data.title ?? data.row.toLocaleString("en") : "…";
    row.append(make("div", { class: "cell number", role: "rowheader", "aria-colindex": "1" }, title));
    if (data?.damage && !data.other) row.append(damagedCell(data.damage, `c${position}`));
    else if (data) row.append(...this.columns.map((column, i) => this.drawCell(data, column, i, position)));
    if (data?.differs?.length || data?.hidden) row.classList.add("differs");
    return row;
  }

  drawCell(data, column, i, position) {
    const place = { row: data.row, column: column.index, boxes: data.boxes?.[i] };
    const differs = data.differs?.includes(i);
    const cell = data.cells?.[i], other = data.other?.[i];
    const element = make("div", {
      class: differs ? "cell differs" : "cell", role: "gridcell", id: `c${position}-${i}`,
      "aria-colindex": i + 2, "data-column": i,
      "aria-label": differs ? `differs: ${describe(cell)}; ${describe(other)}` : describe(cell ?? other),
    });
    element.style.width = `${column.width}px`;
    if (differs) {
      const sides = [[cell, place, data.damage], [other, { ...place, side: "b", boxes: null }, data.other_damage]];
      element.append(...sides.map(([value, where, damage], k) => make("div", { class: k ? "new" : "old" },
        make("i", {}, k ? "b" : "a"),
        damage ? make("span", { class: "odd" }, "damaged") : drawCell(value, where))));
    } else element.append(drawCell(cell ?? other, cell ? place : { ...place, side: "b" }));
    return element;
  }
}

function damagedCell(damage, id) {
  const hex = damage.hex.slice(0, 1).map((line) => make("code", {}, line[1]));
  return make("div", {
    class: "cell damaged", role: "gridcell", id, "data-column": 0, "aria-label": `damaged: ${damage.reason}`,
  }, make("b", {}, "damaged"), " ", make("span", {}, damage.reason), ...hex);
}

// Choose the width of each column and the height of rows from the kinds of the first rows.
export function layOut(columns, rows, size, compared) {
  let tall = false;
  const laid = columns.map((column, i) => {
    const cells = rows.flatMap((row) => [row.cells?.[i], row.other?.[i]]).filter(Boolean);
    const kinds = cells.map((cell) => isStrip(cell) ? "strip" : cell.kind);
    const kind = ["image", "strip", "audio", "list", "text", "numbers", "bytes", "number"].find((each) => kinds.includes(each)) ?? "number";
    if (["image", "strip", "audio"].includes(kind)) tall = true;
    const name = Math.min(column.name.length * 8 + 24, 260);
    const long = kind === "text" ? Math.max(0, ...rows.map((row) => row.cells?.[i]?.text?.length ?? 0)) : 0;
    const wide = kind === "text" ? Math.min(Math.max(long * 7.5 + 28, 110), WIDTHS.text) : WIDTHS[kind];
    return { ...column, kind, width: Math.round(Math.max(["image", "strip"].includes(kind) ? wide * size : wide, name)) };
  });
  const lines = compared ? 2 : 1;
  const height = tall ? 116 * size * (compared ? 1.5 : 1) : Math.max(44, 44 * size) * lines;
  return { columns: laid, rowHeight: Math.round(height) };
}

export const rowsText = (count) => count.exact ? counted(count.rows, "row") : `about ${counted(count.rows, "row")}`;
