import type { WhoAmI } from "./types";

/** As the node judges; it judges again when it is asked. */
export function mayChange(who: WhoAmI, owner: string): boolean {
  return who.role === "admin" || (who.role === "operator" && who.owner === owner);
}

export function maySubmit(who: WhoAmI): boolean {
  return who.role !== "viewer";
}
