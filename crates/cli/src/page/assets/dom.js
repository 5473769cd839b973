// Elements from data. Text goes in as text nodes only: nothing that a node says can become markup.

const SVG = 'http://www.w3.org/2000/svg';

/** Control characters, and those that turn the direction of writing or break lines. */
const HARMS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Attributes that people read or hear. */
const READ = ['title', 'aria-label'];

/** A text that cannot change how other text looks: such characters are shown as escapes. A line feed and a tab stay. */
export function plain(value) {
  const shown = (c) => (c === '\n' || c === '\t' ? c : `\\u{${c.charCodeAt(0).toString(16)}}`);
  return String(value).replace(HARMS, shown);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') element.setAttribute('class', value);
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : READ.includes(name) ? plain(value) : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  }
  return element;
}

/** An HTML element. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** The element with this id. */
export function at(id) {
  return document.getElementById(id);
}

/** Replaces the content of an element, unless its description is the same as the last one. */
const shown = new WeakMap();
export function show(element, key, make) {
  const text = JSON.stringify(key);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  // A person may be on one of the buttons that are made anew.
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset?.key : undefined;
  element.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  if (focused) element.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

/** A number of milliseconds for people. */
export function ms(value) {
  if (value === null || value === undefined) return '–';
  if (value >= 10000) return `${(value / 1000).toFixed(0)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  return value >= 10 ? `${value.toFixed(0)} ms` : `${value.toFixed(2)} ms`;
}

/** A number of bytes for people. */
export function bytes(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} MB`;
  return value >= 1000 ? `${(value / 1000).toFixed(1)} kB` : `${Math.round(value)} B`;
}

/** A time of day. */
export function clock(micros) {
  return new Date(micros / 1000).toLocaleTimeString([], { hour12: false });
}

/** A number of hops. */
export function hops(count) {
  return count === 1 ? '1 hop' : `${count} hops`;
}
