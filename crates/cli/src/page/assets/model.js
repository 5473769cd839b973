// What the page knows: the sections of the view and the selected node; it passes events on. Everything else draws from it.

export class Model extends EventTarget {
  sections = {};
  byId = new Map();
  byName = new Map();
  selected = null;
  connection = 'connecting';
  /** When which node was killed, in microseconds, for the detection times. */
  killed = new Map();

  get kind() { return this.sections.view?.kind ?? 'agent'; }
  get nodes() { return this.sections.nodes ?? []; }

  /** Takes changed sections. */
  apply(changed) {
    Object.assign(this.sections, changed);
    if (changed.nodes) {
      this.byId = new Map(changed.nodes.map((node) => [node.id, node]));
      this.byName = new Map(changed.nodes.map((node) => [node.name, node]));
      if (!this.byId.has(this.selected)) this.select(this.sections.view?.id ?? changed.nodes[0]?.id ?? null);
    }
    this.dispatchEvent(new CustomEvent('sections', { detail: changed }));
  }

  /** Takes one event; one from before the page was opened is `isPast`. */
  push(line, isPast = false) {
    if (isPast) Object.defineProperty(line, 'isPast', { value: true });
    if (line.protocol === 'demo' && line.event === 'killed') this.killed.set(line.id, line.at_micros);
    if (line.protocol === 'demo' && line.event === 'revived') this.killed.delete(line.id);
    this.dispatchEvent(new CustomEvent('news', { detail: line }));
  }

  /** Forgets all events: time went back. */
  clear() {
    this.killed.clear();
    this.dispatchEvent(new CustomEvent('cleared'));
  }

  select(id) {
    if (id === this.selected) return;
    this.selected = id;
    this.dispatchEvent(new CustomEvent('selection', { detail: id }));
  }

  connect(state) {
    this.connection = state;
    this.dispatchEvent(new CustomEvent('connection', { detail: state }));
  }

  /** Calls back now and whenever one of these events comes. */
  on(names, call) {
    for (const name of names.split(' ')) this.addEventListener(name, (event) => call(event.detail, name));
  }

  /** Resolves to the node of the next event for which `test` holds, or to nothing after a while. */
  next(test, limit = 20000) {
    return new Promise((resolve) => {
      const end = (id) => {
        this.removeEventListener('news', look);
        clearTimeout(timer);
        resolve(id);
      };
      const look = ({ detail: line }) => !line.isPast && test(line) && end(line.id ?? line.from);
      const timer = setTimeout(() => end(null), limit);
      this.addEventListener('news', look);
    });
  }

  /** The name of a node, or the beginning of its id. */
  name(id) {
    return this.byId.get(id)?.name ?? (id ? `${String(id).slice(0, 8)}…` : 'nobody');
  }

  /** What is to be said of a node in one word. */
  stateOf(node) {
    if (!node) return 'unknown';
    if (node.suspended) return 'still';
    if (node.up === false && node.state === 'alive') return 'killed';
    return node.state;
  }
}

/** How far around the ring an id is, from 0 to 1. */
export function turn(id) {
  return parseInt(String(id).slice(0, 12), 16) / 2 ** 48;
}
