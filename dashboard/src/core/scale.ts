/** Round numbers from 0 to at least `most`, three to six of them. */
export function ticks(most: number): number[] {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  const found = [];
  for (let i = 0; i * step < most + step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}
