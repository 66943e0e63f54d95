/** The node. Addresses are relative to the page, so that it works below any path. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly errors: string[],
  ) {
    super(errors.join("\n"));
  }
}

const signedOut = new Set<() => void>();

export function onSignedOut(listener: () => void): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

export async function ask(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(`./${path}`, { method, credentials: "same-origin", ...init });
  } catch {
    throw new ApiError(0, ["The node does not answer. Trying again."]);
  }
  if (response.ok) return response;
  if (response.status === 401) for (const listener of signedOut) listener();
  let errors = [`${response.status} ${response.statusText}`];
  try {
    const body: { errors?: string[] } = await response.json();
    if (body.errors?.length) errors = body.errors;
  } catch {
    // Not one of the node's own answers: a proxy's, say.
  }
  throw new ApiError(response.status, errors);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask("GET", path, signal ? { signal } : {})).json() as Promise<T>;
}

export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return (await ask("GET", path, signal ? { signal } : {})).text();
}

export async function send<T>(method: string, path: string, body: unknown): Promise<T> {
  const response = await ask(method, path, {
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return (text ? JSON.parse(text) : {}) as T;
}

export async function sendYaml<T>(path: string, text: string, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/yaml" };
  return (await ask("POST", path, { headers, body: text, ...(signal ? { signal } : {}) })).json() as Promise<T>;
}

export async function signIn(token: string): Promise<void> {
  const response = await fetch("./dashboard/session", {
    method: "POST",
    credentials: "same-origin",
    headers: { authorization: `Bearer ${token}` },
  });
  if (!response.ok) {
    const body: { errors?: string[] } = await response.json().catch(() => ({}));
    throw new ApiError(response.status, body.errors ?? [`${response.status} ${response.statusText}`]);
  }
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "dashboard/session");
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
