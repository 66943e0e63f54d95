import type { WhoAmI } from "./types";

export function onlyHistory(who: WhoAmI): boolean {
  return who.serves === "history";
}

/** As the node judges; it judges again when it is asked. */
export function mayChange(who: WhoAmI, owner: string): boolean {
  if (onlyHistory(who)) return false;
  return who.role === "admin" || (who.role === "operator" && who.owner === owner);
}

export function maySubmit(who: WhoAmI): boolean {
  return who.role !== "viewer" && !onlyHistory(who);
}
