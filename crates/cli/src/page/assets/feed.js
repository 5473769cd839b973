// The connection: a snapshot, then server-sent events. They are read with fetch, because a request can carry the access
// token in a header; EventSource cannot. A lost connection is shown and tried again.

const SILENCE_MS = 15000;
const PAUSES_MS = [500, 1000, 2000, 3000, 5000];

export class Feed {
  #model;
  #token = null;
  #askToken;
  #failures = 0;
  /** The time of the last event that the page has. */
  #lastMicros = 0;
  /** Called with a recorded run. */
  onReplay = () => {};

  /** `askToken(problem)` resolves to the access token that somebody typed. */
  constructor(model, askToken) {
    this.#model = model;
    this.#askToken = askToken;
  }

  /** Runs for ever. */
  async run() {
    for (;;) {
      try {
        await this.#connect();
      } catch (error) {
        if (error.status === 401) {
          this.#model.connect('locked');
          this.#token = await this.#askToken(this.#token === null ? '' : 'This is not its token.');
          continue;
        }
      }
      this.#model.connect('lost');
      const pause = PAUSES_MS[Math.min(this.#failures, PAUSES_MS.length - 1)];
      this.#failures += 1;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** A request with the access token; throws an error with `status` and the agent's words. */
  async request(path, options = {}) {
    const headers = new Headers(options.headers);
    if (this.#token !== null) headers.set('Authorization', `Bearer ${this.#token}`);
    if (options.body !== undefined) headers.set('Content-Type', 'application/json');
    const response = await fetch(path, { ...options, headers, cache: 'no-store' });
    if (response.ok) return response;
    const told = await response.json().catch(() => null);
    const error = new Error(told?.error?.message ?? `${response.status} ${response.statusText}`);
    error.status = response.status;
    error.hint = told?.error?.hint;
    throw error;
  }

  async get(path) {
    return (await this.request(path)).json();
  }

  async post(path, body = {}) {
    return (await this.request(path, { method: 'POST', body: JSON.stringify(body) })).json();
  }

  async #connect() {
    const snapshot = await this.get('/v1/page');
    this.#model.apply(snapshot.sections);
    // After a short loss the page has these events already.
    for (const line of snapshot.news ?? []) {
      if (line.at_micros > this.#lastMicros) this.#push(line, true);
    }
    if (this.#model.kind === 'replay') return this.#replay();
    const stop = new AbortController();
    const headers = snapshot.position ? { 'Last-Event-ID': snapshot.position } : {};
    const response = await this.request('/v1/page/events', { headers, signal: stop.signal });
    this.#model.connect('live');
    this.#failures = 0;
    let timer;
    const silence = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
    };
    try {
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        silence();
        const { value, done } = await reader.read();
        if (done) return;
        const events = (rest + value).split('\n\n');
        rest = events.pop();
        events.forEach((event) => this.#take(event));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** A recorded run comes whole and needs no connection afterwards. */
  async #replay() {
    const trace = await this.get('/v1/replay');
    this.#model.connect('replay');
    this.onReplay(trace);
    await new Promise(() => {});
  }

  #take(event) {
    let kind = '';
    let data = '';
    for (const line of event.split('\n')) {
      if (line.startsWith('event:')) kind = line.slice(6).trim();
      else if (line.startsWith('data:')) data += line.slice(5).trim();
    }
    if (kind === 'sections') this.#model.apply(JSON.parse(data));
    else if (kind === 'news') this.#push(JSON.parse(data), false);
  }

  #push(line, isPast) {
    this.#lastMicros = Math.max(this.#lastMicros, line.at_micros);
    this.#model.push(line, isPast);
  }
}
