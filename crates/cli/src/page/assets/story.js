// A short story for somebody who only watches: it begins after ten idle seconds and ends as soon as somebody does anything.

import { at } from './dom.js';

const IDLE_MS = 10000;
const ACTS = new Set(['killed', 'revived', 'suspended', 'resumed', 'cut', 'healed']);

class Interrupted extends Error {}

export class Story {
  #model;
  #controls;
  #happened;
  #timer = null;
  #stop = null;
  /** The node of the story: acts on it are the story's own. */
  #victim = null;
  #isKilling = false;
  #caption = at('caption');

  constructor(model, controls, happened) {
    [this.#model, this.#controls, this.#happened] = [model, controls, happened];
    for (const name of ['pointerdown', 'keydown', 'wheel', 'touchstart', 'pointermove']) {
      window.addEventListener(name, (event) => event.isTrusted && this.#touch(), { passive: true });
    }
    // Somebody may act in a terminal, in another window or by a script.
    model.on('news', (line) => {
      const isAct = line.protocol === 'demo' && ACTS.has(line.event);
      const isOwn = line.id !== undefined && line.id === this.#victim;
      if (isAct && !isOwn && !(this.#isKilling && line.event === 'killed')) this.#touch();
    });
    this.#arm();
  }

  #touch() {
    if (this.#stop) {
      this.#stop();
      this.#say('');
    }
    this.#arm();
  }

  #arm() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#begin(), IDLE_MS);
  }

  async #begin() {
    const isReady = this.#model.kind === 'demo' && this.#model.connection === 'live' && !document.hidden && !document.querySelector('dialog[open]');
    const isWhole = this.#model.nodes.every((node) => node.up && !node.suspended && node.state === 'alive') && !this.#model.sections.view?.is_cut;
    // A visitor who waits for a repair to end must see its last step.
    if (!isReady || !isWhole || !this.#happened.isSettled) return this.#arm();
    // Two windows must not tell two stories at once.
    const play = async (lock) => lock && this.#play();
    if (navigator.locks) await navigator.locks.request('annulus-story', { ifAvailable: true }, play);
    else await this.#play();
    this.#arm();
  }

  async #play() {
    const isStopped = new Promise((_, reject) => {
      this.#stop = () => reject(new Interrupted());
    });
    isStopped.catch(() => {});
    const or = (promise) => Promise.race([promise, isStopped]);
    const pause = (time) => or(new Promise((resolve) => setTimeout(resolve, time)));
    const until = async (test, limit = 25000) => {
      const end = Date.now() + limit;
      while (!test() && Date.now() < end) await pause(200);
    };
    try {
      await this.#tell(or, pause, until);
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
    } finally {
      const id = this.#victim;
      this.#stop = null;
      this.#say('');
      if (id !== null) await this.#revive(id);
      this.#victim = null;
    }
  }

  /** Starts the node of the story again, unless it runs: what the page knows may be a moment old. */
  async #revive(id) {
    const isUp = () => this.#model.byId.get(id)?.up;
    for (let tries = 0; isUp() && tries < 5; tries += 1) await new Promise((resolve) => setTimeout(resolve, 200));
    if (!isUp()) await this.#controls.act('revive', id);
  }

  /** A node dies in its turn, the ring repairs itself, a message takes another way, mail waits and arrives. */
  async #tell(or, pause, until) {
    const model = this.#model;
    this.#say('A short story: the next node that has its turn will crash, without a goodbye. Touch anything to stop it.');
    await pause(4000);
    // If this window vanishes, the node comes back all the same.
    this.#isKilling = true;
    const id = await this.#controls.killInTurn({ revive_after_ms: 60000 });
    [this.#victim, this.#isKilling] = [id, false];
    if (id === null) return;
    const name = model.name(id);
    const state = () => model.byId.get(id)?.state;
    const sender = model.nodes.find((node) => node.id !== id);
    await pause(0);
    this.#say(`${name} is gone, and the token with it. The others do not know yet: a probe must fail first.`);
    await until(() => state() !== 'alive');
    this.#say(`${name} is suspected. It has a few seconds to contradict.`);
    await until(() => state() === 'dead');
    this.#say(`${name} is dead for all. Its neighbours close the ring, and another node restores the token.`);
    await pause(3500);
    await or(model.next((line) => line.event === 'message_routed' && line.home === id && line.path.at(-1) !== id, 5000));
    this.#say(`A message to a key of ${name} takes another way: a neighbour owns the key now.`);
    await pause(3500);
    await or(this.#controls.mail(id, sender.id));
    this.#say(`${sender.name} sends a letter to ${name}. It waits with other nodes until ${name} is back.`);
    await pause(4500);
    await or(this.#controls.act('revive', id));
    this.#say(`${name} starts again, with its identity and its disk.`);
    await until(() => state() === 'alive');
    this.#say(`${name} is alive again. Its mail arrives, once.`);
    await pause(5000);
  }

  #say(text) {
    this.#caption.textContent = text;
  }
}
