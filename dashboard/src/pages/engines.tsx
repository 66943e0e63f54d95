import { ago } from "../core/format";
import { useNow, useResource, useTitle } from "../core/hooks";
import type { Engine, WhoAmI } from "../core/types";
import { Bar, Card, Empty, Loading, Page, Trouble } from "../ui/parts";

const TONES: Record<string, string> = { READY: "good", STARTING: "wait", LOST: "bad", DRAINING: "warn", STOPPING: "warn" };

export function Engines({ who }: { who: WhoAmI }) {
  useTitle("Engines");
  const { data, error } = useResource<{ engines: Engine[] }>("engines", 3000);
  const now = useNow();
  if (!data) return <Page title="Engines"><Loading error={error} /></Page>;
  return (
    <Page title="Engines" aside={<span className="muted">Spark applications that jobs run on</span>}>
      <Trouble text={error} />
      <Card flush>
        {data.engines.length ? (
          <table className="rows">
            <thead>
              <tr>
                <th scope="col">State</th>
                <th scope="col">Engine</th>
                <th scope="col">Slots used</th>
                <th scope="col" className="wide">Memory</th>
                <th scope="col" className="wide">Owner</th>
                <th scope="col" className="wide">Up</th>
                {who.role === "admin" && <th scope="col">Log</th>}
              </tr>
            </thead>
            <tbody>
              {data.engines.map((e) => (
                <tr key={e.id}>
                  <td>
                    <span className={`badge tone-${TONES[e.state] ?? "off"}`}>
                      <span className="dot" />
                      {e.state.toLowerCase()}
                    </span>
                  </td>
                  <td className="name">
                    <code>{e.id}</code>
                    <span className="note">
                      {e.master}
                      {e.cores ? ` · ${e.cores} cores` : ""}
                      {e.foreign ? " · attached" : ""}
                      {e.worker_name ? ` · on ${e.worker_name}` : ""}
                    </span>
                  </td>
                  <td>
                    <Bar part={e.slots - e.free} of={e.slots} label={`${e.slots - e.free} of ${e.slots}`} />
                  </td>
                  <td className="wide num">{e.memory || "–"}</td>
                  <td className="wide muted">{e.owner ?? "anybody"}</td>
                  <td className="wide muted">{e.since ? ago(e.since, now) : "–"}</td>
                  {who.role === "admin" && (
                    <td>
                      <a href={`./taskmanagers/${encodeURIComponent(e.id)}/log`} target="_blank" rel="noreferrer">
                        open
                      </a>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <Empty>No engines are running. One is started when a job needs it.</Empty>
        )}
      </Card>
    </Page>
  );
}
