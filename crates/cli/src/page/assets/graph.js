// The generation graph of the token: each restore begins a line, each merge ends one in another.

import { h, s } from './dom.js';

const EDGES_SHOWN = 6;
const STEP = 28;
const LANE = 26;

/** The last splits and merges as a picture, and as text for who cannot see it. */
export function genealogy(model, token) {
  // Every node whose token goes into another writes its merge down: one edge is enough.
  const sorted = [...(token.edges ?? [])].sort((a, b) => a.fence - b.fence);
  const edges = sorted.filter((edge, index) => !sorted.slice(0, index).some((other) => other.kind === edge.kind && other.from === edge.from && other.to === edge.to)).slice(-EDGES_SHOWN);
  if (edges.length === 0) return h('p', { class: 'empty' }, 'The first token still goes round: no split, no merge.');
  const lanes = new Map();
  const lane = (id) => {
    if (!lanes.has(id)) lanes.set(id, { row: lanes.size, from: null, to: null });
    return lanes.get(id);
  };
  edges.forEach((edge, index) => {
    for (const id of [edge.from, edge.to]) {
      const line = lane(id);
      line.from ??= id === edge.to && edge.kind === 'restore' ? index + 1 : Math.max(0, index);
      line.to = index + 1;
    }
  });
  const live = new Set((token.tokens ?? []).map((item) => String(item.token_id)));
  const width = (edges.length + 2) * STEP + 70;
  const height = lanes.size * LANE + 14;
  const x = (index) => 8 + index * STEP;
  const y = (row) => 16 + row * LANE;
  const parts = [...lanes].map(([id, line]) => {
    const end = live.has(String(id)) ? edges.length + 1 : line.to;
    return s('line', { class: 'life', x1: x(line.from), x2: x(Math.max(end, line.from + 0.6)), y1: y(line.row), y2: y(line.row) });
  });
  const names = [...lanes].map(([id, line]) => {
    const end = live.has(String(id)) ? edges.length + 1 : line.to;
    return s('text', { x: x(Math.max(end, line.from + 0.6)) + 6, y: y(line.row) + 4 }, String(id));
  });
  const joints = edges.map((edge, index) => {
    const [a, b] = [lanes.get(edge.from), lanes.get(edge.to)];
    return [
      s('path', { class: edge.kind === 'merge' ? 'step merge' : 'step', d: `M${x(index + 0.4)} ${y(a.row)}L${x(index + 1)} ${y(b.row)}` }),
      s('circle', { cx: x(index + 1), cy: y(b.row), r: 3.5 }),
    ];
  });
  const host = (edge) => edge.by ?? model.byId.get(token.hosts?.[String(edge.host)])?.name ?? 'a node';
  const text = edges.map((edge) => (edge.kind === 'merge' ? `${host(edge)} merged ${edge.from} into ${edge.to}` : `${host(edge)} restored ${edge.from} as ${edge.to}`));
  const label = text.slice(-3).join('; ');
  return [
    s('svg', { class: 'genealogy', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label, preserveAspectRatio: 'xMinYMin meet' }, parts, joints, names),
    h('p', { class: 'empty' }, text[text.length - 1]),
  ];
}
