import { about } from "../core/format";
import { useNow, useResource, useTitle } from "../core/hooks";
import type { Engine } from "../core/types";
import { Card, Empty, JobLink, Loading, Page, ShortId, Trouble, When } from "../ui/parts";

interface QueueView {
  waiting: number;
  jobs: { job_id: string; name: string; since: number; waits_for: string | null }[];
}

export function Queue() {
  useTitle("Queue");
  const { data, error } = useResource<QueueView>("queue", 2000);
  const engines = useResource<{ engines: Engine[] }>("engines", 3000);
  const now = useNow();
  if (!data) return <Page title="Queue"><Loading error={error} /></Page>;
  return (
    <Page title="Queue" aside={<span className="muted">{data.waiting} waiting, of all owners</span>}>
      <Trouble text={error} />
      {data.jobs.length > 0 && engines.data && <p className="why">{reason(engines.data.engines)}</p>}
      <Card flush>
        {data.jobs.length ? (
          <table className="rows">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col" className="wide">Since</th>
                <th scope="col" className="right">Waiting for</th>
              </tr>
            </thead>
            <tbody>
              {data.jobs.map((j) => (
                <tr key={j.job_id}>
                  <td className="name">
                    <JobLink id={j.job_id} name={j.name} /> <ShortId id={j.job_id} />
                    {j.waits_for && <span className="note">needs {j.waits_for}</span>}
                  </td>
                  <td className="wide muted">
                    <When ms={j.since} />
                  </td>
                  <td className="right num">{about(now - j.since)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <Empty>No jobs are waiting.</Empty>
        )}
      </Card>
    </Page>
  );
}

function reason(engines: Engine[]): string {
  const ready = engines.filter((e) => e.state === "READY");
  if (!ready.length) return engines.length ? "An engine is being started." : "No engine is ready yet.";
  const free = ready.reduce((n, e) => n + e.free, 0);
  const slots = ready.reduce((n, e) => n + e.slots, 0);
  return free
    ? `${free} of ${slots} slots are free, but none of them is for these jobs.`
    : `All ${slots} slots of ${ready.length} ${ready.length === 1 ? "engine" : "engines"} are in use.`;
}
