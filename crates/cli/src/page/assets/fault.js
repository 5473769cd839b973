// Faults of a recorded run in words. A trace has them as Rust prints them: Crash { host: HostId(4), … }, Heal.

function hosts(text) {
  return [...text.matchAll(/HostId\((\d+)\)/g)].map(([, number]) => `h${number}`);
}

/** The kind of a fault, the hosts that it names, and a sentence. */
export function fault(text) {
  const kind = text.match(/^\w+/)?.[0] ?? '';
  const named = hosts(text);
  const who = named.join(', ');
  const power = text.includes('power: true') ? ' loses power' : ' crashes';
  const sentences = {
    Crash: `${who}${power}`,
    Die: `${who} dies for good`,
    Start: `${who} starts again`,
    Partition: `the network is cut between ${who} and the rest`,
    Heal: 'the cut heals',
    Calm: 'all faults end',
    Suspend: `${who} is suspended`,
    Sleep: `${who} sleeps`,
    Resume: `${who} goes on`,
  };
  return { kind, named, text: sentences[kind] ?? text };
}
