import { useState } from "react";
import { messageOf, send } from "../core/api";
import { duration } from "../core/format";
import { useNow, useResource, useTitle } from "../core/hooks";
import { wordsOf } from "../core/search";
import type { ClusterStatus, WhoAmI } from "../core/types";
import { Ask, Card, Empty, Facts, Loading, Page, Trouble, When } from "../ui/parts";
import { toast } from "../ui/toasts";

interface Option {
  key: string;
  value: string;
  origin: string;
  description: string;
}

export function Cluster({ who }: { who: WhoAmI }) {
  useTitle("Cluster");
  const { data, error } = useResource<ClusterStatus>("cluster/status", 3000);
  const now = useNow();
  const [asking, setAsking] = useState(false);
  const admin = who.role === "admin";
  if (!data) return <Page title="Cluster"><Loading error={error} /></Page>;
  const handOver = async (): Promise<void> => {
    setAsking(false);
    const id = toast("Handing over leadership…", "busy");
    try {
      await send("POST", "cluster/handover", { epoch: data.leader?.epoch ?? null });
      toast("The leader is handing over; this page will show the new one.", "done", id);
    } catch (failed) {
      toast(messageOf(failed), "failed", id);
    }
  };
  return (
    <Page title="Cluster" aside={admin && <button onClick={() => setAsking(true)}>Hand over</button>}>
      <Trouble text={error || (data.degraded ? `The cluster has no leader: ${data.reason}. Running jobs continue.` : "")} />
      <div className="columns">
        <Card title="Leader">
          {data.leader ? (
            <Facts of={[["Address", <code>{data.leader.address}</code>], ["Epoch", data.leader.epoch], ["High availability", data["high-availability"]]]} />
          ) : (
            <Facts
              of={[
                ["Since", data.since ? <When ms={data.since} /> : "–"],
                ["Last leader", data.lastLeader ? `${data.lastLeader.address}, epoch ${data.lastLeader.epoch}` : "none"],
              ]}
            />
          )}
        </Card>
        <Card title="Node that answered">
          <Facts
            of={[
              ["Address", <code>{data.node.address}</code>],
              ["Host", `${data.node.host}, process ${data.node.pid}`],
              ["Up for", duration(now - data.node.started)],
              ["Version", data.version],
              ...(admin ? [["Log", <a href="./jobmanager/log" target="_blank" rel="noreferrer">open</a>] as [string, React.ReactNode]] : []),
            ]}
          />
        </Card>
      </div>
      {admin ? <Configuration /> : <Card title="Configuration"><Empty>Only admins may see the configuration.</Empty></Card>}
      {asking && (
        <Ask title="Hand over leadership?" yes="Hand over" onYes={() => void handOver()} onNo={() => setAsking(false)}>
          <p>Another node becomes the leader. No job restarts.</p>
        </Ask>
      )}
    </Page>
  );
}

function Configuration() {
  const { data, error } = useResource<{ options: Option[] }>("cluster/configuration");
  const [text, setText] = useState("");
  const [all, setAll] = useState(false);
  if (!data) return <Card title="Configuration"><Loading error={error} /></Card>;
  const words = wordsOf(text);
  const shown = data.options.filter(
    (o) => (all || words.length || o.origin !== "default") && words.every((w) => o.key.includes(w) || o.value.toLowerCase().includes(w)),
  );
  return (
    <Card
      title="Configuration"
      aside={
        <span className="inline">
          <input type="search" placeholder="Option or value" aria-label="Search options" value={text} onChange={(e) => setText(e.target.value)} />
          <label>
            <input type="checkbox" checked={all} onChange={(e) => setAll(e.target.checked)} /> defaults too
          </label>
        </span>
      }
      flush
    >
      {shown.length ? (
        <table className="rows options">
          <thead>
            <tr>
              <th scope="col">Option</th>
              <th scope="col">Value</th>
              <th scope="col">From</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((o) => (
              <tr key={o.key} title={o.description}>
                <td><code>{o.key}</code></td>
                <td className="wrap">{o.value}</td>
                <td className={o.origin === "default" ? "muted" : ""}>{o.origin}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <Empty>{words.length ? "No matching options." : "No options are set; all have their defaults."}</Empty>
      )}
    </Card>
  );
}
